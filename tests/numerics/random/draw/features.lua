--- Features that a case may draw. `false`: no case has it, because the product does not do yet what it promises there.
return {
  repeated_layers_with_several_parameters = false, -- over the stages of a pipeline: only the first parameter's gradient is summed
  masks_in_pipelines = false, -- a stage that reads only an output without gradient is refused
  cuts_inside_mixtures = false, -- a cut between experts and combine is refused
  frozen_in_16_bits_in_pipelines = false, -- the holders of a frozen parameter and the other ranks expect different types
  mistakes_in_pipelines = false, -- a mistake that only one stage sees leaves the others waiting
  mistakes_by_hand = false, -- a mistake in the second or a later micro-batch leaves half a step
}
