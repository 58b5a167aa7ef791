package reproduce

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/farfield-ml/farfield/internal/report"
	"github.com/farfield-ml/farfield/train"
)

var fastFig6 = Row{
	Name:   "fast-fig6",
	Doc:    "training loss by update and by second: Image, pairs of texts (Retrieval), and next characters at a context of 4096",
	Source: "Gerami et al. 2024, FAST, arXiv 2402.07901, figure 6 (RTX A5000)",
	Claim:  "by update softmax converges as fast as Fastmax1 or faster, by second Fastmax1 is much faster; Image and Retrieval, curves without numbers",
	Seeds:  true, Tunes: true,
	pieces: fig6Lessons.pieces, outcome: fig6Lessons.outcome(fig6Findings),
}

// longText is the least number of tokens of the lessons that are not of images.
const longText = 4000

// pairsTask is the task of pairs of texts: the published one where its papers are at
// hand, else its substitute.
func pairsTask(o *Options) string {
	if _, err := os.Stat(filepath.Join(o.Data, "aan")); o.Data != "" && err == nil {
		return "retrieval"
	}
	return "films"
}

var fig6Lessons = lessons(func(o *Options) (list []*lesson, err error) {
	add := func(name, preset string, steps, batch, length, vocab int, set map[string]string) *lesson {
		l, failed := presetLesson(name, preset, steps, set)
		if failed != nil {
			err = failed
			return new(lesson)
		}
		l.Config.Batch, l.Config.EvalEvery = batch, max(1, steps/4)
		l.Methods, l.Seeds = []method{softmax, fastmax1, fastmax2}, pick(o.Budget, 1, 3, 3)
		l.Length, l.Vocab, l.Baseline = length, vocab, true
		list = append(list, l)
		return l
	}
	image := add("image", pick(o.Budget, "image", "image", "lra-image"), pick(o.Budget, 100, 3000, 10000), pick(o.Budget, 32, 32, 256), 1024, 256, nil)
	image.Config.EvalSamples = 200

	pairs := add("pairs", pick(o.Budget, "films", "films", "lra-retrieval"), pick(o.Budget, 50, 1500, 5000), pick(o.Budget, 2, 4, 16), 2*longText, 257, nil)
	c := &pairs.Config
	c.SetTask(pairsTask(o))
	c.TaskSet = map[string]string{"length": fmt.Sprint(longText)}
	c.EvalSamples, c.FinalSamples = pick(o.Budget, 16, 50, 500), pick(o.Budget, 48, 200, 2000)

	text := add("next-character", "default", pick(o.Budget, 120, 800, 5000), 1, 4096, shakespeareVocab, map[string]string{"data": shakespeareData})
	c = &text.Config
	c.SetTask("charlm")
	c.FirstContext, c.FirstBatch, c.Model.Context = 0, 0, text.Length // every update at the full length
	c.EvalSamples, c.FinalSamples = 4, 0
	return list, err
})

// lastLoss is the running mean of the loss, at the last update that was made by a
// second; 0 updates before the first.
func lastLoss(steps []train.Step, second float64) (loss float64, updates int) {
	var all []float64
	for _, s := range steps {
		if s.Elapsed > second {
			break
		}
		all, updates = append(all, s.Loss), s.Step
	}
	if len(all) == 0 {
		return 0, 0
	}
	loss, _ = mean(all[max(0, len(all)-max(1, len(steps)/smoothed)):])
	return loss, updates
}

// fig6Findings compares losses at the same update and at the same second.
func fig6Findings(out *Outcome, list []scored) error {
	t := report.Table{
		Title: "Training loss at the same update and at the same second",
		Head:  []string{"lesson", "tokens N", "mechanism", "ms an update", "updates as fast as softmax", "loss at the end", "seconds", "updates by then", "loss then"},
		Note:  otherFastmax + " Means of the last twentieth of the updates, first seed. The same second is that at which the fastest mechanism has made all updates. Seconds include validations.",
	}
	for _, s := range list {
		type ended struct {
			*result
			seconds, loss float64
		}
		var ends []ended
		first := 0.0
		for i := range s.Results {
			x := &s.Results[i]
			steps := x.Runs[0].Steps
			if len(steps) == 0 {
				continue
			}
			e := ended{result: x, seconds: steps[len(steps)-1].Elapsed}
			e.loss, _ = lastLoss(steps, e.seconds)
			if first == 0 || e.seconds < first {
				first = e.seconds
			}
			ends = append(ends, e)
		}
		n := s.Length
		if s.Config.TaskSet["length"] != "" { // each of a pair
			n = longText
		}
		slow := 0.0
		var losses []string
		for _, e := range ends {
			if e.Label == softmax.Label {
				slow = e.seconds
			}
		}
		for _, e := range ends {
			steps := e.Runs[0].Steps
			loss, updates := lastLoss(steps, first)
			then, ratio := none, none
			if updates > 0 {
				then = digits(loss)
				losses = append(losses, e.Label+" "+then)
			}
			if slow > 0 {
				ratio = digits(slow / e.seconds)
			}
			addRow(&t, s.Name, fmt.Sprint(n), e.Label, digits(1e3*e.seconds/float64(steps[len(steps)-1].Step)), ratio,
				digits(e.loss), digits(first), fmt.Sprint(updates), then)
		}
		if len(losses) > 0 {
			out.find("%s, N = %d: after %s seconds the training loss is %s.", s.Name, n, digits(first), listed(losses))
		}
	}
	if list[0].Seeds == 1 { // the quick budget
		command, err := fig6Lessons.namedHour("fast-fig6", "")
		if err != nil {
			return err
		}
		t.Note += " More updates, of three seeds: " + command + "."
	}
	out.Tables = append(out.Tables, t)
	return nil
}
