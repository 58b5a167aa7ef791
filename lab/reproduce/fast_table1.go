package reproduce

var fastTable1 = Row{
	Name:   "fast-table1",
	Doc:    "accuracy on tasks of the Long Range Arena, scaled down, beside simple baselines",
	Source: "Gerami et al. 2024, FAST, arXiv 2402.07901, table 1",
	Claim:  "ListOps, Text, Image: softmax 38.37, 61.95, 40.57 %; Fastmax1 37.20, 63.25, 42.76 %; Fastmax2 37.40, 64.30, 43.18 %; linear 16.13, 65.90, 42.34 %",
	Lacks:  "Retrieval, Pathfinder, Informer, Reformer and Performer",
	Seeds:  true, Tunes: true,
	pieces: arenaLessons.pieces, outcome: arenaLessons.outcome(accuracies(arenaPublished, []string{fastmax1.Label, fastmax2.Label},
		"Published expressions have 500 to 2000 tokens and texts 4000, in budgets below full they have 40 to 200 and 500. Published models are larger, and their rows are of different programs: linear attention's are the arena's own, which pads without masks. mnist, patches of 4 by 4, is not of the table: all of these mechanisms learn it within minutes. "+otherFastmax)),
}

// arenaPublished are accuracies in percent.
var arenaPublished = map[string]map[string]float64{
	"listops": {softmax.Label: 38.37, fastmax1.Label: 37.20, fastmax2.Label: 37.40, linear.Label: 16.13},
	"text":    {softmax.Label: 61.95, fastmax1.Label: 63.25, fastmax2.Label: 64.30, linear.Label: 65.90},
	"image":   {softmax.Label: 40.57, fastmax1.Label: 42.76, fastmax2.Label: 43.18, linear.Label: 42.34},
}

var arenaLessons = lessons(func(o *Options) (list []*lesson, err error) {
	type sized struct {
		name, preset  string
		set           map[string]string // below the full budget
		length, vocab int
		steps         [3]int // of the budgets; 0: not within it
	}
	for _, x := range []sized{
		{"mnist", "mnist", nil, 49, 0, [3]int{400, 400, 1000}},
		{"listops", pick(o.Budget, "listops", "listops", "lra-listops"), brief["listops"], pick(o.Budget, 200, 200, 2000), 18, [3]int{1000, 1000, 5000}},
		{"text", pick(o.Budget, "text", "text", "lra-text"), map[string]string{"length": "500"}, pick(o.Budget, 500, 500, 4000), 257, [3]int{0, 300, 20000}},
		{"image", pick(o.Budget, "image", "image", "lra-image"), nil, 1024, 256, [3]int{0, 300, 35000}},
	} {
		if x.steps[o.Budget] == 0 {
			continue
		}
		if o.Budget == Full {
			x.set = nil
		}
		l, err := presetLesson(x.name, x.preset, x.steps[o.Budget], x.set)
		if err != nil {
			return nil, err
		}
		l.hasten(o)
		l.Methods, l.Seeds = contenders, pick(o.Budget, 1, 1, 3)
		l.Length, l.Vocab, l.Baseline = x.length, x.vocab, true
		list = append(list, l)
	}
	return list, nil
})
