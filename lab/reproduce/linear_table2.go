package reproduce

import "github.com/farfield-ml/farfield/internal/generate"

var linearTable2 = Row{
	Name:   "linear-table2",
	Doc:    "CIFAR-10 drawn level by level: bits per dimension, images a second, and what the trained models draw",
	Source: "Katharopoulos et al. 2020, Transformers are RNNs, arXiv 2006.16236, table 2",
	Claim:  "softmax 3.47 bits at 0.004 images/s, with a cache of keys and values 0.32; LSH-1 3.39 at 0.015, LSH-4 3.51 at 0.005; linear 3.40 at 17.85, on a GPU",
	Seeds:  true, Tunes: true,
	pieces: cifarDrawn.lessons().pieces, outcome: cifarDrawn.outcome,
}

var cifarDrawn = drawnTable{
	Row: "linear-table2", Pixels: &cifarPixels, Shape: generate.ImageShape{Height: 32, Width: 32, Channels: 3}, Sheet: 16,
	Presets: [3]string{"cifar-gen", "cifar-gen", "linear-cifar"}, Steps: [3]int{500, 600, 50 * 12500},
	EvalSamples: 20, FinalSamples: 100,
	Published: []drawnPublished{
		{softmax.Label, 3.47, 0.32, 0.004},
		{"lsh-1", 3.39, 0, 0.015},
		{"lsh-4", 3.51, 0, 0.005},
		{linear.Label, 3.40, 17.85, 0},
	},
	Chunk: 37,
}
