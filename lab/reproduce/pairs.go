package reproduce

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/farfield-ml/farfield/internal/dataset"
	"github.com/farfield-ml/farfield/internal/report"
	"github.com/farfield-ml/farfield/internal/task"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/train"
)

var pairsRow = Row{
	Name:   "pairs",
	Doc:    "targets written byte by byte after their sources: dates from English to German, and answers to questions about meetings, beside the first three sentences of what is asked about",
	Source: "a task of this project; the slides name translation, FAST (arXiv 2402.07901, section 4) summaries; questions of QMSum (Zhong et al. 2021, arXiv 2104.05938)",
	Claim:  "no table of this setting",
	Lacks:  "a corpus of two languages: none is at hand",
	Seeds:  true, Tunes: true,
	pieces: pairLessons.pieces, outcome: pairLessons.outcome(pairFindings),
}

var (
	englishMonths = []string{"January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December"}
	germanMonths  = []string{"Januar", "Februar", "März", "April", "Mai", "Juni", "Juli", "August", "September", "Oktober", "November", "Dezember"}
)

// translatedDates returns n different dates, each in one of four forms of English and in German.
func translatedDates(n int) (list []task.TextPair) {
	const years, days = 1000, 28
	key := rng.New(4)
	for i := range n {
		x := key.Permute(i, years*12*days)
		year, month, day := 1000+x/(12*days), x/days%12, 1+x%days
		suffix := "th"
		if s := map[int]string{1: "st", 2: "nd", 3: "rd"}[day%10]; s != "" && day/10 != 1 {
			suffix = s
		}
		name := englishMonths[month]
		source := []string{
			fmt.Sprintf("%s %d, %d", name, day, year), fmt.Sprintf("%d %s %d", day, name, year),
			fmt.Sprintf("the %d%s of %s %d", day, suffix, name, year), fmt.Sprintf("%s %d%s, %d", name[:3], day, suffix, year),
		}[key.Fold(1).Intn(uint64(i), 4)]
		list = append(list, task.TextPair{Source: []byte(source), Target: fmt.Appendf(nil, "%d. %s %d", day, germanMonths[month], year)})
	}
	return list
}

// queryBreak is between a question and what was said.
const queryBreak = "\n"

// meetingAnswers returns the questions of QMSum about a part of a meeting, each with that part, and their answers.
func meetingAnswers(folder string) (list []task.TextPair, err error) {
	for _, name := range []string{"val.jsonl", "test.jsonl"} {
		path := filepath.Join(folder, "qmsum", name)
		if _, err := os.Stat(path); err != nil {
			return nil, fmt.Errorf("qmsum: it holds no %s: %w", name, task.ErrNoData)
		}
		text, err := dataset.ReadFile(path, io.ReadAll)
		if err != nil {
			return nil, err
		}
		for line := range bytes.Lines(text) {
			var m struct {
				Turns   []struct{ Content string } `json:"meeting_transcripts"`
				Queries []struct {
					Query  string     `json:"query"`
					Answer string     `json:"answer"`
					Spans  [][]string `json:"relevant_text_span"`
				} `json:"specific_query_list"`
			}
			if err := json.Unmarshal(line, &m); err != nil {
				return nil, fmt.Errorf("%s: %w", path, err)
			}
			for _, q := range m.Queries {
				said := ""
				for _, span := range q.Spans {
					if len(span) != 2 {
						return nil, fmt.Errorf("%s: relevant_text_span: it has %d ends, 2 are needed", path, len(span))
					}
					from, err1 := strconv.Atoi(span[0])
					to, err2 := strconv.Atoi(span[1])
					if err := errors.Join(err1, err2); err != nil || from < 0 || to < from {
						return nil, fmt.Errorf("%s: relevant_text_span: it is %q, two numbers of turns are needed", path, span)
					}
					for i := from; i <= min(to, len(m.Turns)-1); i++ {
						said += m.Turns[i].Content + " "
					}
				}
				if said != "" {
					list = append(list, task.TextPair{Source: []byte(q.Query + queryBreak + strings.TrimSpace(said)), Target: []byte(q.Answer)})
				}
			}
		}
	}
	return list, nil
}

// openTextPairs returns the task of pairs.
func openTextPairs(list []task.TextPair, set map[string]string) (_ task.Source, err error) {
	f, err := os.CreateTemp("", "pairs-*.jsonl")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(f.Name())) }()
	e := json.NewEncoder(f)
	for _, p := range list {
		if err := e.Encode(map[string]string{"source": string(p.Source), "target": string(p.Target)}); err != nil {
			return nil, err
		}
	}
	settings := map[string]string{"data": f.Name()}
	for k, v := range set {
		settings[k] = v
	}
	return task.Open(task.PairsName, task.Options{Settings: settings, Seed: 1})
}

var pairLessons = lessons(func(o *Options) (list []*lesson, _ error) {
	for _, x := range []struct {
		name           string
		steps          [3]int
		batch, judged  int
		length, target int
		read           func(folder string) ([]task.TextPair, error)
	}{
		{"dates", [3]int{400, 1000, 10000}, 32, 300, 64, 24, func(string) ([]task.TextPair, error) { return translatedDates(8000), nil }},
		{"answers", [3]int{600, 1500, 10000}, 4, 40, 2048, 512, meetingAnswers},
	} {
		set := map[string]string{"length": fmt.Sprint(x.length), "target_length": fmt.Sprint(x.target)}
		l, err := presetLesson(x.name, task.PairsName, x.steps[o.Budget], set)
		if err != nil {
			return nil, err
		}
		c := &l.Config
		c.Batch, c.EvalSamples, c.FinalSamples = x.batch, 50, x.judged
		c.EvalEvery = max(1, c.Steps/4)
		l.open = func(folder string) (task.Source, error) {
			pairs, err := x.read(folder)
			if err != nil {
				return nil, err
			}
			return openTextPairs(pairs, set)
		}
		l.look = func(t *train.Trainer) (any, error) { return writtenTargets(t, set, x.judged) }
		l.Methods, l.Seeds = []method{softmax, fastmax2, linear}, pick(o.Budget, 1, 1, 3)
		l.Length, l.Vocab, l.Baseline = x.length, 256, true
		list = append(list, l)
	}
	return list, nil
})

// writtenTargets returns the scores of the targets that a model writes for at most n judged sources, and of what
// needs no model.
func writtenTargets(t *train.Trainer, set map[string]string, n int) (list []task.TextScore, _ error) {
	src, ok := t.Source().(*task.TextPairs)
	if !ok {
		return nil, fmt.Errorf("task %s: is none of pairs", t.Source().Spec().Name)
	}
	writer, err := task.NewPairWriter(set)
	if err != nil {
		return nil, err
	}
	spec := src.Spec()
	split := spec.JudgedSplit()
	n = min(n, spec.Count[split])
	score := task.TextScore{Name: "model"}
	for i := range n {
		p := src.Pair(split, i)
		target, err := writeTarget(t.Model(), writer, p.Source)
		if err != nil {
			return nil, err
		}
		score.Add(target, p.Target)
	}
	return append([]task.TextScore{score}, task.CopyBaselines(func(f func(task.TextPair)) {
		for i := range n {
			p := src.Pair(split, i)
			if _, said, found := bytes.Cut(p.Source, []byte(queryBreak)); found {
				p.Source = said
			}
			f(p)
		}
	})...), nil
}

// writeTarget returns the most likely target of a source, byte by byte.
func writeTarget(m *model.Model, w *task.PairWriter, source []byte) (target []byte, _ error) {
	tokens, _, err := w.Prompt(source)
	if err != nil {
		return nil, err
	}
	session, err := m.NewSession(1)
	if err != nil {
		return nil, err
	}
	for len(target) < w.MaxTarget() {
		logits, err := session.Step(context.Background(), tokens, len(tokens))
		if err != nil {
			return nil, err
		}
		best := int32(0)
		for token, x := range logits {
			if x > logits[best] {
				best = int32(token)
			}
		}
		if w.EndsTarget(best) {
			break
		}
		target, tokens = append(target, byte(best)), append(tokens[:0], best)
	}
	return target, nil
}

// pairFindings put the written targets beside what needs no model.
func pairFindings(out *Outcome, list []scored) error {
	t := report.Table{Title: "Written targets", Head: []string{"lesson", "written by", "exact, %", "ROUGE-1", "ROUGE-2", "ROUGE-L", "targets"},
		Note: "The most likely byte at each place. ROUGE: F₁ of words in lower case, without stemming. Dates that are judged are not among those to learn from; questions about one meeting may be. " +
			"What is asked about is cut to 1535 bytes for models; the first three sentences are of all of it, without the question."}
	for i := range list {
		s := &list[i]
		var last []task.TextScore
		best := task.TextScore{}
		for _, x := range s.Results {
			scores, err := convert[[]task.TextScore](x.Runs[0].Look)
			if err != nil {
				return err
			}
			if len(scores) == 0 {
				continue
			}
			scores[0].Name, last = x.Label, scores
			if scores[0].RougeL > best.RougeL || best.Name == "" {
				best = scores[0]
			}
			addTextScore(&t, s.Name, &scores[0])
		}
		if len(last) == 0 {
			continue
		}
		simple := last[1]
		for _, b := range last[1:] {
			if b.RougeL > simple.RougeL {
				simple = b
			}
			b.Name += " (baseline)"
			addTextScore(&t, s.Name, &b)
		}
		verdict := "better than the baseline by more than the error of the targets"
		// Scores lie between 0 and 1, so that their variance is at most that of a share.
		if best.RougeL-2*math.Hypot(deviationOf(best.RougeL, float64(best.Texts)), deviationOf(simple.RougeL, float64(simple.Texts))) <= simple.RougeL {
			verdict = "not " + verdict
		}
		out.find("%s: %s has a ROUGE-L of %.3f and %.1f %% exact, %s %.3f: %s.", s.Name, best.Name, best.RougeL, 100*best.Exact, simple.Name, simple.RougeL, verdict)
	}
	out.Tables = append([]report.Table{t}, out.Tables...)
	return nil
}

func addTextScore(t *report.Table, lesson string, s *task.TextScore) {
	addRow(t, lesson, s.Name, fmt.Sprintf("%.1f", 100*s.Exact), fmt.Sprintf("%.3f", s.Rouge1), fmt.Sprintf("%.3f", s.Rouge2), fmt.Sprintf("%.3f", s.RougeL), fmt.Sprint(s.Texts))
}
