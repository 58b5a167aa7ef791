package mechanism

import (
	"strconv"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/attention/headwise"
	"github.com/farfield-ml/farfield/mechanism/internal/entry"
	"github.com/farfield-ml/farfield/mechanism/internal/zoo"
	"github.com/farfield-ml/farfield/tensor"
)

// This file has the rows of the functions in package zoo.

// clusterSettings are the settings of rows that cluster their queries.
var clusterSettings = []Setting{
	{"clusters", "100", "C, of the queries, 1 to 4096"},
	{"bits", "63", "of the hashes that are clustered, 1 to 64"},
	{"iterations", "10", "of k-means, 1 to 1000; it ends where nothing moves any more"},
	{"bias", "true", "false: the planes of the hashes go through 0"},
	softmaxScaleSetting,
	seedSetting,
}

var clusterConstants = []Param{
	{"planes", "(bits,D+1)", "bit b of the hash of q is q·planes[b,:D] > planes[b,D]"},
	{"start", "(C)", "cluster c begins with the hash of query ⌊N·start⌋"},
}

// softmaxScaleSetting is the setting of rows with softmax weights.
var softmaxScaleSetting = Setting{"scale", "1/sqrt(D)", "factor of the scores: a number or 1/sqrt(D)"}

var performer = Row{
	Name:   "performer",
	Doc:    "φ(q)·φ(k) of random features whose mean is exp(q·k/√D): Performer, FAVOR+",
	Source: "Choromanski et al. 2021, Performer, arXiv 2009.14794, lemma 1 and section 2.4",
	Traits: "positive weights, of either sign with kernel=trigonometric, whose denominators may cancel; direct and linear forms; state of fixed size",
	Linear: true,
	Settings: []Setting{
		{"kernel", "softmax", "what the features stand for: softmax, hyperbolic (softmax by features of ±w, less variance), trigonometric (softmax by sines and cosines, of either sign) or relu"},
		{"features", "D·ln(D)", "rows w of the projection: a whole number, or D·ln(D)"},
		{"projection", "orthogonal", "rows within a block of D: orthogonal, or iid"},
		{"norms", "chi", "lengths of orthogonal rows: chi, as those of iid ones, or sqrt(D)"},
		{"scale", "1/sqrt(D)", "factor of the scores that the features stand for: a number or 1/sqrt(D)"},
		{"feature_eps", "0", "added to every feature of kernel=relu; the authors' program has 1e-3"},
		{"eps", "0", "added to the sum of the weights"},
		{"form", "paper", "paper, or as programs have it (code): kernel=softmax less the largest exponent of all keys, with 1e-4 added to " +
			"features, and kernel=relu with 1e-3 added to them and 1e-6 to sums of them (performer-pytorch; the latter where it is causal); " +
			"kernel=hyperbolic less the largest |x|²/√D, with 1e-6 added to the sum (fast-transformers). Only relu is causal then"},
		redrawSetting,
		seedSetting,
	},
	Constants: []Param{
		{"projection", "(M, D)", "rows w of the projection, the same for all heads"},
	},
	build: func(r *reader) (attention.Mechanism, error) { return zoo.NewPerformer(r.Reader) },
}

var rfa = Row{
	Name:   "rfa",
	Doc:    "φ(q̂)·φ(k̂) of sines and cosines whose mean is a Gaussian of q̂ - k̂, or of relu features: random feature attention",
	Source: "Peng et al. 2021, Random Feature Attention, arXiv 2103.02143, sections 3.1 and 3.2; kernel=gaussian norm=none: Rahimi and Recht 2007",
	Traits: "weights of either sign with kernel=gaussian, so that denominators may nearly cancel, which is counted; never negative with kernel=arccos; " +
		"direct and linear forms; state of fixed size; a gate where the call has log_g",
	Linear: true,
	Settings: []Setting{
		{"kernel", "gaussian", "gaussian: sines and cosines; or arccos: relu"},
		{"features", "D", "rows w of the projection of each head: a whole number, or D. gaussian has two features for each"},
		{"tau", "1", "τ, by which rows w are divided"},
		{"norm", "unit", "rows of q and k are divided by their length: unit; or are as they are: none"},
		{"eps", "0", "added to the sum of the weights"},
		{"gate", "false", "true: a token's key enters with the factor 1 - g, g = exp(log_g); without log_g in the call, whole"},
		{"form", "paper", "paper, or as the authors' program: features 0.1·(sin, cos) of rows over their length + 1e-3, and a sum that is " +
			"at least 1 (code), of size at least 1 (code-cross) or 1e-3 (code-masked)"},
		seedSetting,
	},
	Params: []Param{
		{"sigma", "(H, D)", "σ, factors of the channels before the projection; of the first head that shares its keys"},
	},
	Constants: []Param{
		{"R", "(H, M, D)", "rows w of the projection of each head, or of the first that shares its keys"},
	},
	fit: func(o *Options, shapes map[string][]int) {
		if s := shapes["R"]; len(s) == 3 {
			o.setDefault("features", strconv.Itoa(s[1]))
		}
	},
	build: zooSpec(zoo.RFASpec),
}

var retention = Row{
	Name:   "retention",
	Doc:    "γ_h^(i-j)·q·k/√D without a denominator: the retention of RetNet",
	Source: "Sun et al. 2023, Retentive Network, arXiv 2307.08621, eq. 5-8",
	Traits: "weights of either sign, which are not divided by their sum; causal calls only; direct and linear forms; state of fixed size",
	Linear: true,
	Settings: []Setting{
		{"gamma", "1-2^(-5-h)", "γ of each key head h = 0, 1, …: numbers above 0 and at most 1, or 1-2^(-5-h)"},
		{"scale", "1/sqrt(D)", "factor of the scores: a number or 1/sqrt(D)"},
	},
	build: zooSpec(zoo.RetentionSpec),
}

var linformer = Row{
	Name:   "linformer",
	Doc:    "softmax over r learned mixtures of keys: softmax(q·(EᵀK)ᵀ/√D)·FᵀV",
	Source: "Wang et al. 2020, Linformer, arXiv 2006.04768, eq. 7",
	Traits: "weights of both signs, whose rows do not sum to one; linear in the tokens; not causal, no state",
	Linear: true,
	Settings: []Setting{
		{"rank", "256", "r, the number of mixtures"},
		{"share", "heads", "heads: one E and one F for all heads; kv: F is E, too; none: each head has its own"},
		{"columns", "reached", "reached: a mixture that no key reaches takes no part; all: it has the weight exp(0), as in the programs"},
		seedSetting,
	},
	Params: []Param{
		{"E", "(L,r)", "projection of keys, by their place; (H,L,r) for share=none"},
		{"F", "(L,r)", "projection of values; not for share=kv"},
	},
	Untrained: "E and F",
	fit:       fitLinformer,
	build:     zooBuilder(zoo.NewLinformer),
}

var fourier = Row{
	Name:   "fourier",
	Doc:    "Π_d sinc(R(q_d-k_d))⁴: the Fourier integral estimator of FourierFormer, quadratic in the tokens",
	Source: "Nguyen et al. 2022, FourierFormer, arXiv 2206.00206, eq. 13",
	Traits: "weights never negative; direct form only; the state is a cache that grows",
	Settings: []Setting{
		{"R", "1", "what R starts from; the paper has 1 for images and 2 for text"},
		{"channels", "false", "true: each channel has an R of its own"},
		{"eps", "0", "added to the sum of the weights; the programs have 1e-6, beside which weights vanish from D = 32 on"},
		{"scaled", "false", "true: scores are multiplied by R^D, as the program for CPUs does, so that eps counts relative to R^(4D)"},
	},
	Params: []Param{
		{"R", "(1)", "inverse width of the kernel; (D) for channels=true"},
	},
	fit: func(o *Options, shapes map[string][]int) {
		if shape, given := shapes["R"]; given && tensor.Size(shape...) > 1 {
			o.setDefault("channels", "true")
		}
	},
	build: zooBuilder(zoo.NewFourier),
}

var local = Row{
	Name:   "local",
	Doc:    "softmax over a window of keys around the query",
	Source: "form=window: fast-transformers' LocalAttention; form=block: lucidrains/local-attention",
	Traits: "positive weights; cost in proportion to the window; a state of fixed size",
	Linear: true,
	Settings: []Setting{
		{"window", "128", "w: a query sees keys -⌊w/2⌋ ≤ j-i < ⌈w/2⌉, of which a causal one has the left half; with form=block the tokens of a block"},
		{"span", "0", "w, instead of window: a query at place p = i+M-N sees the near field of a mechanism with window=w: keys |p-j| < w, of which a causal one has j ≤ p"},
		{"form", "window", "window, or block: a query sees whole blocks around its own"},
		{"back", "1", "form=block: blocks seen before its own"},
		{"forward", "1", "form=block: blocks seen after its own; a causal query sees none"},
		{"exact", "false", "form=block: true: no further than back or forward times the window"},
		softmaxScaleSetting,
		scoreCapSetting,
	},
	build: zooBuilder(zoo.NewSparse(zoo.ReadLocal)),
}

var longformer = Row{
	Name:   "longformer",
	Doc:    "softmax over a window, and global tokens that see all and are seen by all",
	Source: "Beltagy et al. 2020, Longformer, arXiv 2004.05150, section 3.1",
	Traits: "positive weights; cost in proportion to the window and the global tokens; the state is a cache that grows",
	Linear: true,
	Settings: []Setting{
		{"window", "512", "w: a query sees keys |j-i| ≤ ⌊w/2⌋, of which a causal one has the left half"},
		{"global", "0", "places of the global tokens, with commas between them, or none"},
		softmaxScaleSetting,
	},
	build: zooBuilder(zoo.NewSparse(zoo.ReadLongformer)),
}

var longnet = Row{
	Name:   "longnet",
	Doc:    "softmax within segments of several lengths, of the longer ones every second token and fewer",
	Source: "Ding et al. 2023, LongNet, arXiv 2307.02486, section 3; form=code: torchscale's DilatedAttention",
	Traits: "positive weights; cost N·Σ w/r² for segments of w tokens, of which every r-th; the state is a cache that grows",
	Settings: []Setting{
		{"segments", "2048,4096,8192,16384,32768", "w: tokens of a segment, of each branch"},
		{"ratios", "1,2,4,6,12", "r: a head keeps every r-th token of a segment, of each branch"},
		{"form", "paper", "paper: head h begins with token h mod r, and gradients are exact; code: with token ⌊h/⌈H/r⌉⌋, and what mixes the branches is constant in gradients"},
		softmaxScaleSetting,
	},
	build: zooBuilder(zoo.NewSparse(zoo.ReadLongNet)),
}

var sparseStrided = Row{
	Name:   "sparse-strided",
	Doc:    "softmax over the last tokens, and every stride-th token before them",
	Source: "Child et al. 2019, Sparse Transformers, arXiv 1904.10509, section 4.2, both factors in one head",
	Traits: "positive weights; cost N·(stride + N/stride), of N^1.5 with stride √N; the state is a cache that grows",
	Settings: []Setting{
		{"stride", "128", "s: a query sees |i-j| < s, and i-j that are multiples of s"},
		softmaxScaleSetting,
	},
	build: zooBuilder(zoo.NewSparse(zoo.ReadStrided)),
}

var sparseFixed = Row{
	Name:   "sparse-fixed",
	Doc:    "softmax over the query's block, and the last tokens of every block before",
	Source: "Child et al. 2019, Sparse Transformers, arXiv 1904.10509, section 4.2, both factors in one head",
	Traits: "positive weights; cost N·(stride + c·N/stride); the state is a cache that grows",
	Settings: []Setting{
		{"stride", "128", "s: tokens of a block"},
		{"c", "8", "tokens at the end of a block that queries of other blocks see"},
		softmaxScaleSetting,
	},
	build: zooBuilder(zoo.NewSparse(zoo.ReadFixed)),
}

var adaptiveSpan = Row{
	Name:   "adaptive-span",
	Doc:    "softmax with a span that each head learns: keys fade out over a ramp beyond it",
	Source: "Sukhbaatar et al. 2019, Adaptive Attention Span in Transformers, arXiv 1905.07799, section 2.2",
	Traits: "positive weights; cost in proportion to the spans; a state of fixed size",
	Linear: true,
	Settings: []Setting{
		{"span", "32", "what z starts from, in tokens"},
		{"ramp", "32", "R: tokens over which weights fade, a number above 0"},
		{"limit", "1024", "S: z counts as no less than 0 and no more than this"},
		{"penalty", "1e-6", "λ: factor of Σ z, the loss of the mechanism's own"},
		softmaxScaleSetting,
	},
	Params: []Param{
		{"span", "(H)", "z of each query head, in tokens"},
	},
	build: zooBuilder(zoo.NewAdaptiveSpans),
}

var transformerXL = Row{
	Name:   "transformer-xl",
	Doc:    "softmax of the content and the distance of keys, over a memory of tokens",
	Source: "Dai et al. 2019, Transformer-XL, arXiv 1901.02860, section 3.3",
	Traits: "positive weights; cost in proportion to the memory; a state of fixed size",
	Linear: true,
	Settings: []Setting{
		{"memory", "512", "L: a query sees its own token and the L-1 before it, and none after, in calls that are not causal too"},
		softmaxScaleSetting,
	},
	Params: []Param{
		{"r", "(H,memory,D)", "what distances are to queries; starts as sinusoids"},
		{"u", "(H,D)", "what queries have in common for keys"},
		{"vb", "(H,D)", "what queries have in common for distances"},
	},
	Untrained: "r, u and vb",
	build:     zooBuilder(zoo.NewTransformerXL),
}

var nystrom = Row{
	Name:   "nystrom",
	Doc:    "softmax by way of landmarks, the means of neighbours, and a pseudo-inverse: Nyströmformer",
	Source: "Xiong et al. 2021, Nyströmformer, arXiv 2102.03902, eq. 13-15",
	Traits: "weights may be negative; linear in the tokens; no causal form",
	Linear: true,
	Settings: []Setting{
		{"landmarks", "64", "of queries and of keys, 1 to 4096; fewer where there are fewer tokens"},
		{"iterations", "6", "towards the pseudo-inverse, 0 to 64; Saved.Residual tells how near they came"},
		{"conv", "0", "tokens of a convolution of the values that is added to the output, an odd number; 0: none"},
		{"form", "paper", "paper: masked keys are absent; code: masked keys are zeros in the means, as in the authors' program"},
		seedSetting,
	},
	Params: []Param{
		{"conv", "(H,conv)", "weights of the convolution, where there is one"},
	},
	fit: func(o *Options, shapes map[string][]int) {
		if conv := shapes["conv"]; len(conv) == 2 {
			o.Heads = conv[0]
			o.setDefault("conv", strconv.Itoa(conv[1]))
		}
	},
	build: zooBuilder(zoo.NewNystrom),
}

var informer = Row{
	Name:   "informer",
	Doc:    "softmax of the queries whose scores differ most, the mean of the values for all others: ProbSparse",
	Source: "Zhou et al. 2021, Informer, arXiv 2012.07436, section 3, eq. 4 and 6",
	Traits: "positive weights; N·ln M in time; no causal form",
	Settings: []Setting{
		{"factor", "5", "c: of ⌈ln M⌉ keys a query is measured by, and of ⌈ln N⌉ queries that are computed, 1 to 1024"},
		{"form", "paper", "paper: the measure takes the mean of the scores sampled; code: their sum over M, as in the authors' program"},
		{"sample", "drawn", "drawn: places of keys are drawn as they are needed; stored: they are a constant, to be written by others"},
		seedSetting,
	},
	Constants: []Param{
		{"sample", "(L,factor·⌈ln L⌉)", "with sample=stored: token i is measured by the keys at ⌊M·sample⌋ of M"},
	},
	fit: func(o *Options, shapes map[string][]int) {
		if sample := shapes["sample"]; len(sample) == 2 {
			o.Length = sample[0]
			o.setDefault("sample", "stored")
		}
	},
	build: zooBuilder(zoo.NewInformer),
}

var luna = Row{
	Name:   "luna",
	Doc:    "softmax over a short sequence into which the tokens are packed by learned queries: Luna",
	Source: "Ma et al. 2021, Luna, arXiv 2106.01540, eq. 7-8 and section 3.3",
	Traits: "linear in the tokens; positive weights; form=causal is causal, with a state of fixed size",
	Linear: true,
	Settings: []Setting{
		{"length", "16", "of the packed sequence, 1 to 4096"},
		{"form", "encoder", "encoder: two softmax attentions, not causal; causal: the causal one, which is another function"},
		{"omega", "elu+1", "of form=causal: elu+1, softplus (log2(1+2^x), as in the authors' program) or elu, whose weights may be negative"},
		{"scale", "1/sqrt(D)", "factor of the scores: a number or 1/sqrt(D)"},
		seedSetting,
	},
	Params: []Param{
		{"p", "(H,length,D)", "queries of the packed sequence"},
	},
	Untrained: "p",
	fit: func(o *Options, shapes map[string][]int) {
		if p := shapes["p"]; len(p) == 3 {
			o.Heads = p[0]
			o.setDefault("length", strconv.Itoa(p[1]))
		}
	},
	build: zooBuilder(zoo.NewLuna),
}

var eva = Row{
	Name:   "eva",
	Doc:    "softmax over the keys of a window and one summary of each chunk of all tokens, with control variates: EVA",
	Source: "Zheng et al. 2023, Efficient Attention via Control Variates, arXiv 2302.04542, section 4; 1-D",
	Traits: "positive weights; linear in the tokens; with a chunk of fixed size it is causal and not linear, and the state is a cache that grows",
	Linear: true,
	Settings: []Setting{
		{"window", "32", "queries of a window, which see each other's keys, 1 to 4096"},
		{"overlap", "0", "keys by which windows and chunks reach beyond both their ends, causal ones back alone, 0 to 4096"},
		{"landmarks", "49", "chunks into which all tokens are cut, 1 to 4096"},
		{"chunk", "none", "none, or tokens of a chunk, which divide window: the causal variant, in which μ is the sum of both means, chunks do not overlap, and landmarks are not used"},
		{"rpe", "false", "true: a learned bias of each pair of places in a window"},
		{"noise", "none", "none, or normal: the constant noise is added to the means μ, as in training; not with a chunk"},
		{"form", "paper", "paper: means are of the tokens that exist; code: absent tokens are zeros in them, as in the authors' program"},
		seedSetting,
	},
	Params: []Param{
		{"mq", "(D,D)", "map of the mean query of a chunk"}, {"mq_bias", "(D)", ""},
		{"lnq", "(D)", "gain of its layer norm"}, {"lnq_bias", "(D)", ""},
		{"mk", "(D,D)", "map of the mean key of a chunk"}, {"mk_bias", "(D)", ""},
		{"lnk", "(D)", "gain of its layer norm"}, {"lnk_bias", "(D)", ""},
		{"rpe", "(H,window,window+2·overlap)", "with rpe=true: the bias"},
	},
	Untrained: "mq, mk and the norms after them",
	Constants: []Param{
		{"noise", "(H,landmarks,D)", "with noise=normal"},
	},
	fit:   fitEVA,
	build: zooBuilder(zoo.NewEVA),
}

var clustered = Row{
	Name:      "clustered",
	Doc:       "softmax(q̄·k/√D) of the mean q̄ of a cluster of queries, for all of them",
	Source:    "Vyas et al. 2020, Fast transformers with clustered attention, arXiv 2007.04825, eq. 3-6",
	Traits:    "positive weights; linear in the tokens; no causal form",
	Linear:    true,
	Settings:  clusterSettings,
	Constants: clusterConstants,
	fit:       fitClusters,
	build:     zooBuilder(zoo.NewClustered),
}

var improvedClustered = Row{
	Name:   "improved-clustered",
	Doc:    "clustered, where each query has its own weights for the top keys of its cluster",
	Source: "Vyas et al. 2020, Fast transformers with clustered attention, arXiv 2007.04825, eq. 9-11",
	Traits: "positive weights; linear in the tokens; no causal form",
	Linear: true,
	Settings: append([]Setting{
		{"topk", "32", "keys of the largest weights of a cluster, 1 to 4096; fewer where there are fewer keys"},
	}, clusterSettings...),
	Constants: clusterConstants,
	fit:       fitClusters,
	build:     zooBuilder(zoo.NewImprovedClustered),
}

var reformer = Row{
	Name:   "reformer",
	Doc:    "softmax(q·k/√D) with the keys k = q/|q| of tokens near in angle, by sorted hashes of several rounds: LSH attention",
	Source: "Kitaev et al. 2020, Reformer, arXiv 2001.04451, eq. 3-5 and appendix A",
	Traits: "positive weights; linear in the tokens; causal in chunks of each bucket; state that grows",
	Linear: true,
	Settings: []Setting{
		{"bucket", "64", "tokens of a chunk of the sorted sequence, in causal calls of a bucket, which sees itself and the chunk before, 1 to 65536"},
		{"rounds", "4", "of hashing and sorting, 1 to 32"},
		{"buckets", "64", "of the hashes, an even number from 2 to 4096; fewer where there are fewer chunks, but in causal calls, where about 2·tokens/bucket suit"},
		{"form", "paper", "paper: softmax over the keys of all rounds; fast-transformers: mean of the rounds, no chunk before the first, always all buckets"},
		{"repeats", "once", "once: a key that several rounds find counts once; counted: as often as it is found, as in the authors' program"},
		{"self", "alone", "alone: a token sees itself only if it sees no other; seen: like any other"},
		{"masks", "absent", "absent: masked keys take no place in chunks; kept: they take one, as in the programs, and there is no causal form"},
		softmaxScaleSetting,
		seedSetting,
	},
	Constants: []Param{
		{"rotations", "(rounds,buckets/2,D)", "axes r of the hashes: the bucket of q is the largest of q·r and -q·r"},
	},
	fit: func(o *Options, shapes map[string][]int) {
		if rotations := shapes["rotations"]; len(rotations) == 3 {
			o.setDefault("rounds", strconv.Itoa(rotations[0]))
			o.setDefault("buckets", strconv.Itoa(2*rotations[1]))
		}
	},
	build: zooBuilder(zoo.NewReformer),
}

var scatterbrain = Row{
	Name:   "scatterbrain",
	Doc:    "exp(q·k/√D) of near keys, in a window or by hashes, φ(q)·φ(k) of all others: sparse and low-rank attention",
	Source: "Chen et al. 2021, Scatterbrain, arXiv 2110.15343, section 4",
	Traits: "positive weights; linear in the tokens; causal with a window, where the state is a cache that grows",
	Linear: true,
	Settings: []Setting{
		{"support", "local", "what is near: local (a window) or lsh (the same block when sorted by a hash)"},
		{"window", "128", "w of support=local: a query sees keys -⌊w/2⌋ ≤ j-i < ⌈w/2⌉ exactly, of which a causal one has the left half"},
		{"cluster", "64", "keys of a block of support=lsh"},
		{"features", "D·ln(D)", "rows w of the projection, each for the features of ±w: a whole number, or D·ln(D)"},
		{"projection", "orthogonal", "rows within a block of D: orthogonal, or iid"},
		softmaxScaleSetting,
		seedSetting,
	},
	Constants: []Param{
		{"projection", "(M, D)", "rows w of the projection, the same for all heads"},
		{"alpha", "(D+2)", "with support=lsh: the direction by which tokens are sorted"},
	},
	fit: func(o *Options, shapes map[string][]int) {
		if projection := shapes["projection"]; len(projection) == 2 {
			o.setDefault("features", strconv.Itoa(projection[0]))
		}
		if shapes["alpha"] != nil {
			o.setDefault("support", "lsh")
		}
	},
	build: zooBuilder(zoo.NewScatterbrain),
}

var exactTopK = Row{
	Name:   "exact-topk",
	Doc:    "softmax over the k largest scores of each query: what approximations by chosen keys aim at, quadratic in the tokens",
	Source: "Vyas et al. 2020, Fast transformers with clustered attention, arXiv 2007.04825, section 4 (oracle-top)",
	Traits: "positive weights; quadratic in the tokens; the state is a cache that grows",
	Settings: []Setting{
		{"topk", "32", "k, keys of each query, 1 to 65536; fewer where it sees fewer"},
		softmaxScaleSetting,
	},
	build: zooBuilder(zoo.NewExactTopK),
}

var primal = Row{
	Name:   "primal",
	Doc:    "projections of each query and of the key at its place, with a loss that makes them singular vectors: Primal-Attention",
	Source: "Chen et al. 2023, Primal-Attention, arXiv 2305.19798, eq. 6-10",
	Traits: "no attention matrix, no softmax and no values: a token reaches others through means (causal calls) or sampled values (data=dependent) alone; " +
		"linear in the tokens; a loss of its own; causal with a state of fixed size where data=independent",
	Linear: true,
	Settings: []Setting{
		{"rank", "20", "s, the columns of We and of Wr"},
		{"data", "independent", "independent: We and Wr are learned; dependent: they are made of the values of tokens, by learned ones, not causal"},
		{"tokens", "10·rank", "L of data=dependent: the tokens, evenly spaced, of which We and Wr are made, or 10·rank"},
		{"eta", "0.1", "factor of the loss, or 0: none"},
		{"square", "true", "the loss is J² of each head and sequence; false: J, whose mean the authors' program squares"},
		{"loss", "paper", "J of sums, and Λ; code: of means over the tokens, and Λ²"},
		{"trace", "made", "in J of data=dependent: of the matrices that are made; learned: of those that make them"},
		seedSetting,
	},
	Params: []Param{
		{"We", "(H, D, s)", "projections of queries; (H, L, s) where data=dependent"},
		{"Wr", "(H, D, s)", "projections of keys, likewise"},
		{"Lambda", "(H, s)", "Λ of the loss; starts between 0 and 1"},
		{"Wc", "(D, 2s)", "what outputs are of both, the same for all heads"},
		{"Wc_bias", "(D)", "added to them"},
	},
	Untrained: "We, Wr, Lambda and Wc",
	fit: func(o *Options, shapes map[string][]int) {
		if s := shapes["We"]; len(s) == 3 {
			o.Heads = s[0]
			o.setDefault("rank", strconv.Itoa(s[2]))
			if o.Set["data"] == "dependent" {
				o.setDefault("tokens", strconv.Itoa(s[1]))
			}
		}
	},
	build: zooBuilder(zoo.NewPrimal),
}

// fitClusters sets the numbers of bits and clusters from the shapes of the constants.
func fitClusters(o *Options, shapes map[string][]int) {
	if planes := shapes["planes"]; len(planes) == 2 {
		o.setDefault("bits", strconv.Itoa(planes[0]))
	}
	if start := shapes["start"]; len(start) == 1 {
		o.setDefault("clusters", strconv.Itoa(start[0]))
	}
}

// fitEVA sets window and overlap from the shape of rpe, and landmarks from the shape of
// the noise.
func fitEVA(o *Options, shapes map[string][]int) {
	if rpe := shapes["rpe"]; len(rpe) == 3 && rpe[2] >= rpe[1] {
		o.Heads = rpe[0]
		o.setDefault("rpe", "true")
		o.setDefault("window", strconv.Itoa(rpe[1]))
		o.setDefault("overlap", strconv.Itoa((rpe[2]-rpe[1])/2))
	}
	if noise := shapes["noise"]; len(noise) == 3 {
		o.Heads = noise[0]
		o.setDefault("noise", "normal")
		o.setDefault("landmarks", strconv.Itoa(noise[1]))
	}
}

// fitLinformer sets the length, the rank and share from the shapes of E and F.
func fitLinformer(o *Options, shapes map[string][]int) {
	e := shapes["E"]
	switch _, values := shapes["F"]; {
	case len(e) == 3:
		o.setDefault("share", "none")
		o.Heads, e = e[0], e[1:]
	case len(e) == 2 && !values:
		o.setDefault("share", "kv")
	}
	if len(e) == 2 {
		o.Length = e[0]
		o.setDefault("rank", strconv.Itoa(e[1]))
	}
}

// zooBuilder returns the builder of a function of package zoo that computes whole heads.
func zooBuilder(f func(*entry.Reader) (headwise.Function, error)) builder {
	return headwiseBuilder(func(r *reader) (headwise.Function, error) { return f(r.Reader) })
}

// zooSpec returns the builder of a Spec of package zoo.
func zooSpec(f func(*entry.Reader) (attention.Spec, error)) builder {
	return specBuilder(func(r *reader) (attention.Spec, error) { return f(r.Reader) })
}

// NewRelativeSoftmax returns softmax attention whose scores q·k/√D have a learned term by
// head and distance j-i of key j from query i (Raffel et al. 2020, arXiv 1910.10683, section
// 2.1). The parameter bias [buckets,heads] has a row for each bucket of distances: the first
// half for keys up to the query, the second half for keys after it. In each half, the first
// half of the rows stand for single distances, the others for ranges that grow geometrically;
// the last row stands for 128 and more. It returns an error if buckets is odd or not from 4
// to 256, or if heads is not from 1 to 2²⁴/buckets.
func NewRelativeSoftmax(heads, buckets int) (attention.Mechanism, error) {
	return zoo.NewRelativeSoftmax(heads, buckets)
}
