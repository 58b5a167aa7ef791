package reproduce

import (
	"fmt"
	"math"
	"strings"

	"github.com/farfield-ml/farfield/internal/exchange"
	"github.com/farfield-ml/farfield/internal/report"
	"github.com/farfield-ml/farfield/train"
)

var multipoleScratch = Row{
	Name:   "multipole-scratch",
	Doc:    "multipole trained from scratch, with a codebook that is drawn and with clusters of the input, beside softmax, the default and the window alone: recall of keys and of lines of a text, values of expressions, and bits per byte of a text",
	Source: "a comparison of this project; the tasks of mqar, needle and listops",
	Claim:  "no table of this setting",
	Seeds:  true, Tunes: true,
	pieces: scratchLessons.pieces, outcome: scratchLessons.outcome(scratchFindings),
}

// scratchCells has as many near keys on average as the window alone. scratchThird has its far field in
// each third layer, from the first, and the norm of each head's output, as farThird has, and
// scratchWindow the norm without a far field.
var (
	scratchCells  = multipoleOf(256, 0, nearKeys, nearKeys/2)
	scratchThird  = thirdOf(named(scratchCells, "multipole, 256 cells"))
	scratchWindow = normed(windowAlone)
)

// thirdOf returns m in each third layer, from the first, with the norm of each head's output. The other
// layers have the near field alone.
func thirdOf(m method) method {
	m.Label += ", each third layer"
	m.change = func(c *train.Config) {
		c.Model.AttentionNorm, c.Model.LayerWindows = true, make([]int, c.Model.Layers)
		for i := range c.Model.LayerWindows {
			if i%3 > 0 {
				c.Model.LayerWindows[i] = nearKeys
			}
		}
	}
	return m
}

// normed returns m with the norm of each head's output.
func normed(m method) method {
	m.Label += ", norm of heads"
	m.change = func(c *train.Config) { c.Model.AttentionNorm = true }
	return m
}

// scratchMethods are causal. A drawn codebook stays as it is: keys come to lie about its rows.
func scratchMethods() []method {
	return []method{
		multipoleOf(256, 0, swapBlock, swapWindow),
		{Label: "multipole, clusters of the input, tol 0.1", Name: exchange.Name, Set: map[string]string{"centres": "input", "tol": "0.1"}},
		softmax, farThird, windowAlone,
	}
}

var scratchLessons = lessons(func(o *Options) ([]*lesson, error) {
	keys, err := presetLesson(fmt.Sprintf("mqar-k%d", mqarPairs(&Options{Budget: Hour})[0]), "mqar", pick(o.Budget, 100, 1200, 10000),
		map[string]string{"vocab": fmt.Sprint(mqarVocab), "length": fmt.Sprint(mqarLength), "pairs": "32"})
	if err != nil {
		return nil, err
	}
	keys.Length, keys.Vocab = mqarLength, mqarVocab
	lines, err := presetLesson("needle", "needle", pick(o.Budget, 60, 3000, 10000), map[string]string{"data": "enwik8"})
	if err != nil {
		return nil, err
	}
	lines.Length, lines.Vocab = needleContext, 256
	if o.Budget != Quick {
		lines.look = func(t *train.Trainer) (any, error) { return askNeedles(t, o.Budget) }
	}
	list := []*lesson{keys, lines}
	for _, l := range list {
		l.Methods, l.Seeds, l.Baseline = scratchMethods(), pick(o.Budget, 1, 1, 3), true
	}
	ops, err := expressions("listops", pick(o.Budget, 100, 800, 5000))
	if err != nil {
		return nil, err
	}
	ops.Methods, ops.Seeds = []method{softmax, scratchThird, multipoleAdapted, farThird2, windowAlone}, pick(o.Budget, 1, 1, 3)
	bytes, err := scratchBytes(o)
	return append(append(list, ops), bytes...), err
})

// scratchBytes returns the lessons of bytelm, at equal updates and, with the longest context, at
// equal seconds.
func scratchBytes(o *Options) (list []*lesson, _ error) {
	for _, context := range pick(o.Budget, []int{1 << 10}, []int{1 << 10, 1 << 12, byteEqual}, []int{1 << 10, 1 << 12, byteEqual}) {
		l, err := presetLesson(fmt.Sprintf("enwik8-%dk", context>>10), "default", byteUpdates(context, pick(o.Budget, 1<<18, 5_000_000, 20_000_000)),
			map[string]string{"data": "enwik8"})
		if err != nil {
			return nil, err
		}
		l.Methods, l.Seeds, l.Baseline = []method{softmax, scratchCells, scratchThird, windowAlone, single(scratchWindow), farThird}, pick(o.Budget, 1, 3, 3), true
		if l.EqualSeconds = context >= byteEqual; l.EqualSeconds {
			l.Seeds = 1
		}
		l.growBytes(context)
		list = append(list, l)
	}
	return list, nil
}

// scratchFindings put the scores side by side.
func scratchFindings(out *Outcome, list []scored) error {
	t := report.Table{Title: "From scratch", Head: []string{"task", "mechanism", "score", "processor s", "best simple method"},
		Note: "Scores are shares of right tokens, of enwik8 bits per byte: less is better. Processor seconds of a training in one go, on one thread, of the first seed. Rows with one seed and rows with three compare by the paired differences alone."}
	differences := pairedTable("bits per byte")
	for i := range list {
		s := &list[i]
		if len(s.Results) == 0 {
			continue
		}
		best, metric := 0.0, s.Results[0].Runs[0].Score.Metric
		for _, b := range s.Baselines {
			if best == 0 || metric.IsBetter(b.Score, best) {
				best = b.Score
			}
		}
		for _, x := range s.Results {
			cost := none
			if x.Runs[0].Cost > 0 {
				cost = fmt.Sprintf("%.0f", x.Runs[0].Cost)
			}
			score, simple := percent(x.Value), percent(best)
			if strings.HasPrefix(s.Name, "enwik8") {
				var bits []float64
				for _, run := range x.Runs {
					bits = append(bits, run.Score.Bits)
				}
				value, _ := mean(bits)
				score, simple = fmt.Sprintf("%.3f", value), fmt.Sprintf("%.3f", best/math.Ln2)
			}
			addRow(&t, s.Name, x.Label, score, cost, simple)
		}
		if s.look != nil {
			if err := needleFindings(out, list[i:i+1]); err != nil {
				return err
			}
		}
	}
	for i := range list {
		if strings.HasPrefix(list[i].Name, "enwik8") {
			out.pairBytes(&differences, &list[i], scratchCells, scratchThird, farThird, scratchWindow, windowAlone)
		}
	}
	first := []report.Table{t}
	if len(differences.Rows) > 0 {
		first = append(first, differences)
	}
	out.Tables = append(first, out.Tables...)
	return nil
}
