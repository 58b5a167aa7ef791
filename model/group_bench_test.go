package model

import ()

// smolLM is the shape of SmolLM-135M.
func smolLM() Config {
	return Config{
		Kind: Decoder, Vocab: 49152, Context: 2048, Layers: 30, Width: 576, Heads: 9, KVHeads: 3, Hidden: 1536,
		Norm: RMSNorm, Activation: SwiGLU, Positions: Rotary, Mechanism: "softmax", Tied: true,
	}
}
