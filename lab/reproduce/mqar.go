package reproduce

import (
	"fmt"

	"github.com/farfield-ml/farfield/internal/report"
	"github.com/farfield-ml/farfield/internal/task"
	"github.com/farfield-ml/farfield/model"
)

var mqar = Row{
	Name:   "mqar",
	Doc:    "accuracy of recalling K keys' values in a sequence: elu, p = 1, p = 2, softmax; from the hour on near field with far field and window alone, up to 128 pairs in 2048 tokens",
	Source: "Arora et al. 2023, Zoology, arXiv 2312.04927, figure 2 (ICLR 2024)",
	Claim:  "softmax solves every K; maps of few features fall off as K grows: recall follows the size of the state",
	Seeds:  true, Tunes: true,
	pieces: mqarLessons.pieces, outcome: mqarLessons.outcome(mqarFindings),
}

const (
	mqarLength = 128
	mqarVocab  = 256
)

// The longest sequences, beyond the quick budget. Training begins with short ones, and the
// head is the embedding: copying need not be learned for each of the symbols. With long
// sequences alone, another head or learned positions no training left chance within the same
// updates.
const (
	mqarLongLength = 2048
	mqarLongVocab  = 4096
	mqarLongPairs  = 128
)

func mqarPairs(o *Options) []int {
	return pick(o.Budget, []int{8, 32}, []int{32}, []int{4, 8, 16, 32})
}

var mqarLessons = lessons(func(o *Options) (list []*lesson, err error) {
	for _, k := range mqarPairs(o) {
		l, err := presetLesson(fmt.Sprintf("mqar-k%d", k), "mqar", pick(o.Budget, 1200, 1200, 10000),
			map[string]string{"vocab": fmt.Sprint(mqarVocab), "length": fmt.Sprint(mqarLength), "pairs": fmt.Sprint(k)})
		if err != nil {
			return nil, err
		}
		l.Methods, l.Seeds = []method{softmax, fastmax2, fastmax1, linear}, pick(o.Budget, 1, 1, 3)
		l.Length, l.Vocab, l.Baseline = mqarLength, mqarVocab, true
		list = append(list, l)
	}
	if o.Budget == Quick {
		return list, nil
	}
	for _, l := range list {
		l.Methods = append(l.Methods, nearFar2, farThird, windowAlone)
	}
	l, err := presetLesson(fmt.Sprintf("mqar-k%d", mqarLongPairs), "mqar", pick(o.Budget, 0, 1600, 10000),
		map[string]string{"vocab": fmt.Sprint(mqarLongVocab), "length": fmt.Sprint(mqarLongLength), "pairs": fmt.Sprint(mqarLongPairs)})
	if err != nil {
		return nil, err
	}
	c := &l.Config
	c.Batch, c.FirstContext, c.FirstBatch = 4, 2*mqarLongPairs, 2*mqarLongLength/mqarLongPairs
	c.Model.Positions, c.Model.Tied = model.NoPosition, true
	c.EvalSamples, c.FinalSamples = 50, 500
	l.Methods, l.Seeds = []method{softmax, normed(softmax), farThird, windowAlone, nearFar2}, 1
	l.Length, l.Vocab, l.Baseline = mqarLongLength, mqarLongVocab, true
	return append(list, l), nil
})

// mqarFindings draws accuracy over K.
func mqarFindings(out *Outcome, list []scored) error {
	f := report.Figure{Title: "Recall over the number of pairs", XLabel: "pairs K", YLabel: "accuracy", YLinear: true}
	lines := map[string]*report.Series{}
	var order []string
	for _, s := range list {
		var k int
		if _, err := fmt.Sscanf(s.Name, "mqar-k%d", &k); err != nil {
			return err
		}
		for _, x := range s.Results {
			if lines[x.Label] == nil {
				lines[x.Label] = &report.Series{Name: x.Label}
				order = append(order, x.Label)
			}
			l := lines[x.Label]
			l.X, l.Y = append(l.X, float64(k)), append(l.Y, x.Value)
		}
	}
	for _, name := range order {
		f.Series = append(f.Series, *lines[name])
	}
	out.Figures = append(out.Figures, Drawing{"recall", f})
	last := list[len(list)-1]
	if len(last.Results) > 1 && last.Results[0].Runs[0].Score.Metric == task.Accuracy {
		var shares []string
		for _, x := range last.Results {
			shares = append(shares, x.Label+" "+percent(x.Value))
		}
		out.find("At the largest K, %s: %s.", last.Name, listed(shares))
	}
	chance := 0.
	for _, b := range last.Baselines {
		chance = max(chance, b.Score)
	}
	for _, m := range []*method{&nearFar2, &farThird} {
		far, base := last.resultOf(m), last.resultOf(&softmax)
		if far == nil || base == nil {
			continue
		}
		p := comparePairs(far, base, func(r *learned) float64 { return r.Score.Value })
		verdict := "not reached"
		switch {
		case far.Value < 2*chance:
			verdict += ", at chance"
		case p.mean >= -0.01:
			verdict = "reached"
		}
		if base.Value < 2*chance {
			verdict += "; softmax is at chance itself"
		}
		out.find("%s, accuracy: %s minus %s %s; as softmax within 0.01 required: %s.", last.Name, p.a, p.b, &p, verdict)
	}
	return nil
}
