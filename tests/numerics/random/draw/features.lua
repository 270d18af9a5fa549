--- Features that no case draws, because the product does not do yet what it promises there. Who mends the fault removes the line
--- and the condition that names it.
return {
  -- Over the stages of a pipeline, of a layer that is used several times only the first parameter's gradient is summed.
  repeated_layers_with_several_parameters = true,
  -- A stage that reads only an output without gradient is refused.
  masks_in_pipelines = true,
  -- A cut between experts and combine is refused.
  cuts_inside_mixtures = true,
  -- The holders of a frozen parameter and the other ranks expect different types of its master values.
  frozen_in_16_bits_in_pipelines = true,
  -- A mistake that only one stage sees leaves the others waiting.
  mistakes_in_pipelines = true,
  -- A mistake in the second or a later micro-batch leaves half a step.
  mistakes_by_hand = true,
  -- The first step of a run decides by which power of two gradients are multiplied, also if it fails. In fp16 this shows.
  mistakes_in_the_first_step_of_fp16 = true,
  -- Loss terms to which several stages add have other last bits than without a pipeline.
  terms_of_several_stages = true,
  -- Losses of 3, 5, 6 or 7 data-parallel ranks in a pipeline have other last bits than without it.
  odd_data_ranks_in_pipelines = true,
  -- Padded experts on ranks whose sequences have different lengths fail.
  ragged_padding = false,
}
