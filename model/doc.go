// Package model puts transformers together: decoders, encoders and
// encoder-decoders with any attention mechanism of the catalogue, their
// training passes, their decoding sessions and their files. They read tokens or
// numbers, and give classes, numbers or mixtures of levels, for every position, for
// sequences or for pairs of them.
//
// Blocks are pre-norm: x + f(norm(x)), with f causal or full self-attention, or a
// mixer that takes its place, cross-attention, or an MLP; or they are post-norm,
// norm(x + f(x)); a last norm; then the head, which may be
// tied to the embedding. In a decoder a short causal convolution may stand
// between norm and f. The fields of Config describe the variants of published
// families: BERT, RoBERTa, DistilBERT, MPNet, ModernBERT, GPT-2, GPT-NeoX, Llama,
// Mistral, Qwen, Gemma, Phi, BART and ViT.
//
// Forward keeps, in elements a token, with W the width, H heads of width D, Hkv
// key heads and U hidden units:
//
//	self-attention block    2·W + 2 + 2·H·D + 2·Hkv·D + H
//	cross-attention block   2·W + 2 + 2·H·D + H, and 2·Hkv·D a token of the source
//	MLP block               2·W + 2 + 2·U, or 2·W + 2 + 3·U with a gate
//	norms of heads          H·D + Hkv·D + 2·H + 2·Hkv
//	norm of head outputs    H·D + 2·H
//	window with far field   H·D + 7·H, and H bytes
//	norm of the entry       W + 2
//	last norm               2·W + 2
//	convolution             W
//	decay                   Hkv
//	PoolCLS                 a position of each sequence more
//	pooling                 W a sequence, 4·W a pair more
//	units before the head   their number, for each output; twice, unless ReLU; and once more with a norm
//
// A convolutional net, with windows of K positions of C channels, keeps
// K·C + W for each convolution and K·W for the head, and 4·W + H and another W for
// attention.
//
// Mechanisms that compute whole heads keep what they need in place of H: linformer
// 2·r·D + N numbers a head of N tokens, fourier none.
//
// A decoder with Hkv = H and U = 4·W thus keeps 16·W + H + 4 a layer. Logits are
// not kept. Backward works in 2·W more, and in 2·H·D + 2·Hkv·D that all layers
// share.
package model
