// Package model puts transformers together: decoders, encoders and
// encoder-decoders with any attention mechanism of the catalogue, their
// training passes, their decoding sessions and their files. They read tokens or
// numbers, and give classes, numbers or mixtures of levels, for every position, for
// sequences or for pairs of them.
//
// New makes a model of a Config, and Load reads one that Save wrote. Forward and Backward give the
// loss of a Batch and the gradient, which an optimiser of package optim follows. Logits gives the
// outputs of a Batch, a Session those of a text as it grows.
//
// A layer has two or three blocks, each x + f(norm(x)): f is self-attention, causal or full, or a
// mixer in its place; then cross-attention, where there is a source; then an MLP. With Config.PostNorm
// a block is norm(x + f(x)). After the last layer come a norm and the head, which may be tied to the
// embedding. In a decoder a short causal convolution may stand between norm and f. The fields of
// Config describe the variants of published families: BERT, RoBERTa, DistilBERT, MPNet, ModernBERT,
// GPT-2, GPT-NeoX, Llama, Mistral, Qwen, Gemma, Phi, BART and ViT.
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
