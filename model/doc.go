// Package model implements transformers: decoders, encoders and encoder-decoders with any
// attention mechanism of package mechanism, their training passes, decoding sessions and files.
// They read tokens or numbers, and return classes, numbers or mixtures of levels, for every
// position, for sequences or for pairs of sequences.
//
// New makes a model from a Config, and Load reads one that Save wrote. Forward returns the loss of a
// Batch, and Backward adds its gradient to the gradients of the weights, for an optimiser of package
// optim. Logits returns the outputs of a Batch, a Session those of a text as it grows.
//
// A layer has two or three blocks, each x + f(norm(x)). In the first, f is self-attention, causal or
// full, or another mixer. In an encoder-decoder cross-attention follows, and then an MLP. With
// Config.PostNorm a block is norm(x + f(x)). After the last layer come a norm and the head, which may
// be tied to the embedding. A decoder may have a short causal convolution between norm and f. The
// fields of Config describe the variants of published families: BERT, RoBERTa, DistilBERT, MPNet,
// ModernBERT, GPT-2, GPT-NeoX, Llama, Mistral, Qwen, Gemma, Phi, BART and ViT.
//
// Forward saves this many elements a token for Backward, where W is the width, with H heads of width
// D, Hkv key heads and U hidden units:
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
//	PoolCLS                 one more position in each sequence
//	pooling                 W a sequence, and 4·W a pair
//	units before the head   their number for each output, twice that unless ReLU; once more with a norm
//
// A convolutional net, with windows of K positions of C channels, saves K·C + W for each
// convolution, K·W for the head, and 4·W + H and another W for attention.
//
// Mechanisms that compute whole heads save what they need instead of H: linformer 2·r·D + N
// elements for a head of N tokens, fourier none.
//
// A decoder with Hkv = H and U = 4·W therefore saves 16·W + H + 4 a layer. Logits are not saved.
// Backward needs 2·W more, and 2·H·D + 2·Hkv·D that all layers share.
package model
