// The precompiled header needs a source file of its own to belong to.
