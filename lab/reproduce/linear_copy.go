package reproduce

var linearCopy = Row{
	Name:   "linear-copy",
	Doc:    "learning to repeat a sequence after a separator, causal",
	Source: "Katharopoulos et al. 2020, Transformers are RNNs, arXiv 2006.16236, section 4.1.1, figure 2",
	Claim:  "linear attention converges smoothly to the loss of softmax; no numbers are printed",
	Seeds:  true, Tunes: true,
	pieces: copyLessons.pieces, outcome: copyLessons.outcome(nothingMore),
}

var copyLessons = lessons(func(o *Options) ([]*lesson, error) {
	length := pick(o.Budget, "31", "63", "127")
	l, err := presetLesson("copy", "copy", pick(o.Budget, 1000, 3000, 10000), map[string]string{"length": length})
	if err != nil {
		return nil, err
	}
	l.Methods, l.Seeds = contenders, pick(o.Budget, 1, 1, 3)
	l.Length, l.Vocab, l.Baseline = pick(o.Budget, 62, 126, 254), 11, true
	return []*lesson{l}, nil
})

func nothingMore(*Outcome, []scored) error { return nil }
