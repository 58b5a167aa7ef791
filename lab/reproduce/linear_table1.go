package reproduce

import "github.com/farfield-ml/farfield/internal/generate"

var linearTable1 = Row{
	Name:   "linear-table1",
	Doc:    "MNIST drawn level by level: bits per dimension, images a second, and what the trained models draw",
	Source: "Katharopoulos et al. 2020, Transformers are RNNs, arXiv 2006.16236, table 1",
	Claim:  "softmax 0.621 bits at 0.45 images/s, with a cache of keys and values 7.56; LSH-1 0.745 at 0.68, LSH-4 0.676 at 0.27; linear 0.644 at 142.8, on a GPU",
	Seeds:  true, Tunes: true,
	pieces: mnistDrawn.lessons().pieces, outcome: mnistDrawn.outcome,
}

var mnistDrawn = drawnTable{
	Row: "linear-table1", Pixels: &mnistPixels, Shape: generate.ImageShape{Height: 28, Width: 28, Channels: 1}, Sheet: 36, Recompute: true,
	Presets: [3]string{"mnist-gen", "mnist-gen", "linear-mnist"}, Steps: [3]int{3750, 7500, 250 * 6000},
	EvalSamples: 100, FinalSamples: 500,
	Published: []drawnPublished{
		{softmax.Label, 0.621, 7.56, 0.45},
		{"lsh-1", 0.745, 0, 0.68},
		{"lsh-4", 0.676, 0, 0.27},
		{linear.Label, 0.644, 142.8, 0},
	},
	Neighbours: 1.261, Chunk: 29,
}
