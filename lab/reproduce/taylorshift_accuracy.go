package reproduce

import "github.com/farfield-ml/farfield/model"

var taylorShiftAccuracy = Row{
	Name:   "taylorshift-accuracy",
	Doc:    "accuracy of TaylorShift beside softmax and six efficient mechanisms on pixels, bytes and expressions, scaled down",
	Source: "Nauen et al. 2024, TaylorShift, arXiv 2403.02920, section 5.2, table of accuracies",
	Claim:  "CIFAR pixels, IMDB bytes, ListOps: Transformer 44.7, 65.8, 46.0 %; TaylorShift 47.6, 66.2, 46.1 %",
	Lacks:  "ImageNet Ti and S",
	Seeds:  true, Tunes: true,
	pieces: shiftLessons.pieces, outcome: shiftLessons.outcome(accuracies(shiftPublished, nil,
		"Published ListOps has six operators and lengths of 500 to 2000, 40 to 200 here below the full budget. Published models have 1 layer of width 256, 4 of 256 and 4 of 512; those here are smaller below the full budget, and learn for a shorter time. The page's summary, \"surpasses all other models on 4 of 5\", does not follow from its table: [errata](../paper.md#errata-of-the-papers).")),
}

// Mechanisms that TaylorShift is compared with, in their own settings here.
var (
	rfa       = method{Label: "rfa", Name: "rfa"}
	nystrom   = method{Label: "nystrom", Name: "nystrom"}
	eva       = method{Label: "eva", Name: "eva"}
	linformer = method{Label: "linformer", Name: "linformer"}
)

// shiftPublished are accuracies in percent.
var shiftPublished = map[string]map[string]float64{
	"image":    {softmax.Label: 44.7, taylorshift.Label: 47.6, performer.Label: 34.2, reformer.Label: 44.8, nystrom.Label: 49.4, eva.Label: 46.1, linformer.Label: 29.2, rfa.Label: 44.9},
	"text":     {softmax.Label: 65.8, taylorshift.Label: 66.2, performer.Label: 65.6, reformer.Label: 63.9, nystrom.Label: 65.6, eva.Label: 64.0, linformer.Label: 58.1, rfa.Label: 65.8},
	"listops6": {softmax.Label: 46.0, taylorshift.Label: 46.1, performer.Label: 35.4, reformer.Label: 47.6, nystrom.Label: 44.5, eva.Label: 45.3},
}

var shiftLessons = lessons(func(o *Options) (list []*lesson, err error) {
	all := []method{softmax, taylorshift, performer, rfa, reformer, nystrom, eva, linformer}
	type sized struct {
		name, preset  string
		set           map[string]string // of the full budget
		length, vocab int
		steps         [3]int // of the budgets; 0: not within it
		layers, width int    // of the full budget, with heads of 64
		hidden        int
		first, batch  int // of samples that grow within the hour
	}
	for _, x := range []sized{
		{"listops6", "listops6", map[string]string{"min": "500", "max": "2000"}, pick(o.Budget, 200, 200, 2000), 18, [3]int{1000, 3000, 5 * 3000}, 4, 512, 1024, 25, 256},
		{"image", pick(o.Budget, "image", "image", "lra-image"), nil, 1024, 256, [3]int{0, 300, 35000}, 1, 256, 256, 0, 0},
		{"text", pick(o.Budget, "text", "text", "lra-text"), nil, pick(o.Budget, 1000, 1000, 4000), 257, [3]int{0, 400, 20000}, 4, 256, 1024, 250, 128},
	} {
		if x.steps[o.Budget] == 0 {
			continue
		}
		set := x.set
		if o.Budget != Full {
			set = brief[x.name]
		}
		l, err := presetLesson(x.name, x.preset, x.steps[o.Budget], set)
		if err != nil {
			return nil, err
		}
		l.hasten(o)
		if o.Budget == Hour {
			l.Config.FirstContext, l.Config.FirstBatch = x.first, x.batch
		}
		l.Methods, l.Seeds = pick(o.Budget, []method{softmax, taylorshift, performer, nystrom}, all, all), pick(o.Budget, 1, 1, 3)
		l.Length, l.Vocab, l.Baseline = x.length, x.vocab, true
		if m := &l.Config.Model; o.Budget == Full {
			m.Layers, m.Width, m.Heads, m.Hidden = x.layers, x.width, x.width/64, x.hidden
			m.Positions, m.Pool = model.Sinusoidal, model.PoolCLS
		}
		list = append(list, l)
	}
	return list, nil
})
