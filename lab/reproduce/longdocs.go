package reproduce

import (
	"fmt"
	"strings"

	"github.com/farfield-ml/farfield/internal/report"
	"github.com/farfield-ml/farfield/internal/task"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/train/data"
)

var longDocs = Row{
	Name:   "longdocs",
	Doc:    "the kind of a meeting by documents of 4096 to 32768 bytes of its transcript, without the names of speakers: linear mechanisms and softmax from scratch, and the vectors of MiniLM with its attention exchanged, beside naive Bayes and a linear classifier",
	Source: "a task of this project, on the meetings of QMSum (Zhong et al. 2021, arXiv 2104.05938); TaylorShift and FAST name large documents as uses",
	Claim:  "no table of this setting",
	Lacks:  "other data of this length: 70 meetings are at hand",
	Seeds:  true, Tunes: true,
	pieces: longDocsPieces, outcome: longDocsOutcome,
}

// Kinds of meetings: of a design team (AMI), of researchers (ICSI), of committees of the Welsh and
// the Canadian parliament. QMSum's files do not name them; the roles of speakers do.
var meetingKinds = []string{"design team", "researchers", "Welsh parliament", "Canadian parliament"}

// meetingKind returns the kind of a meeting by the name of a speaker, -1 if it does not tell.
func meetingKind(speaker string) int32 {
	for _, x := range []struct {
		mark string
		kind int32
		ends bool
	}{
		{"Project Manager", 0, false}, {"Industrial Designer", 0, false},
		{"Professor", 1, false}, {"PhD", 1, false}, {"Grad", 1, false},
		{" AM", 2, true}, {"Hon. ", 3, false},
	} {
		if x.ends && strings.HasSuffix(speaker, x.mark) || !x.ends && strings.HasPrefix(speaker, x.mark) {
			return x.kind
		}
	}
	return -1
}

// transcript is what was said in a meeting.
type transcript struct {
	text []byte
	kind int32
}

// document is a part of a transcript.
type document struct {
	*transcript
	from, to int
}

// meetingParts cuts transcripts into documents of a length. It learns from the meetings of QMSum's
// validation file, of which every fifth is held out, and is judged by those of its test file.
type meetingParts struct {
	length int // bytes
	all    [3][]transcript
	parts  [3][]document
}

// openMeetings reads the meetings of a folder of data sets.
func openMeetings(folder string, length int) (*meetingParts, error) {
	t := &meetingParts{length: length}
	for k, name := range []string{"val.jsonl", "test.jsonl"} {
		list, err := readMeetings(folder, name)
		if err != nil {
			return nil, err
		}
		for i := range list {
			split := task.Test
			if k == 0 {
				split = task.Train
				if i%5 == 4 {
					split = task.Valid
				}
			}
			x := transcript{kind: -1}
			for _, turn := range list[i].Turns {
				if kind := meetingKind(turn.Speaker); kind >= 0 && x.kind < 0 {
					x.kind = kind
				}
				x.text = append(append(x.text, turn.Content...), '\n')
			}
			if x.kind < 0 {
				return nil, fmt.Errorf("%s: meeting %d: no speaker tells its kind", name, i+1)
			}
			t.all[split] = append(t.all[split], x)
		}
	}
	for split := range t.all {
		for i := range t.all[split] {
			x := &t.all[split][i]
			for from := 0; from < len(x.text); from += length {
				to := min(from+length, len(x.text))
				if to-from >= length/2 { // the rest of a meeting tells less
					t.parts[split] = append(t.parts[split], document{x, from, to})
				}
			}
		}
		if len(t.parts[split]) == 0 {
			return nil, fmt.Errorf("qmsum: %v has no document of %d bytes", task.Split(split), length)
		}
	}
	return t, nil
}

// Spec returns the specification of the samples.
func (t *meetingParts) Spec() task.Spec {
	return task.Spec{Name: "meetings", Kind: task.Class, Metric: task.Accuracy, Vocab: 257, Length: t.length, Parts: 1, Classes: len(meetingKinds),
		Count: [3]int{len(t.parts[0]), len(t.parts[1]), len(t.parts[2])}}
}

// ClassNames returns the kinds of meetings.
func (t *meetingParts) ClassNames() []string { return meetingKinds }

// set overwrites s with a part of a transcript: the values of its bytes plus one.
func (t *meetingParts) set(s *task.Sample, x *transcript, from, to int) {
	*s = task.Sample{Tokens: s.Tokens[:0], Class: x.kind}
	for _, b := range x.text[from:to] {
		s.Tokens = append(s.Tokens, int32(b)+1)
	}
}

// Sample overwrites s with document i of a split. It returns an error if there is none.
func (t *meetingParts) Sample(s *task.Sample, split task.Split, i int) error {
	spec := t.Spec()
	if err := spec.CheckIndex(split, i); err != nil {
		return err
	}
	d := t.parts[split][i]
	t.set(s, d.transcript, d.from, d.to)
	return nil
}

// DrawWindow overwrites s with length bytes from anywhere in a meeting to learn from, a function
// of key and i. It returns an error if the length is not that of a part of a document.
func (t *meetingParts) DrawWindow(s *task.Sample, length int, key rng.Key, i uint64) error {
	if length < 1 || length > t.length {
		return fmt.Errorf("length: it is %d, 1 to %d are possible", length, t.length)
	}
	key = key.Fold(i)
	list := t.all[task.Train]
	x := &list[key.Intn(0, len(list))]
	n := min(length, len(x.text))
	from := key.Intn(1, len(x.text)-n+1)
	t.set(s, x, from, from+n)
	return nil
}

// Baselines scores the commonest kind, naive Bayes and a linear classifier.
func (t *meetingParts) Baselines(n int) ([]task.Baseline, error) { return task.TextBaselines(t, n) }

var (
	_ task.Baseliner  = (*meetingParts)(nil)
	_ data.ClassNamer = (*meetingParts)(nil)
)

// longDocsLessons have documents that grow to their length.
var longDocsLessons = lessons(func(o *Options) (list []*lesson, _ error) {
	for _, length := range pick(o.Budget, []int{4096}, []int{4096, 16384, 32768}, []int{4096, 8192, 16384, 32768}) {
		steps := pick(o.Budget, 60, 200, 2000)
		l, err := presetLesson(fmt.Sprintf("meetings-%dk", length>>10), "text", steps, nil)
		if err != nil {
			return nil, err
		}
		c := &l.Config
		c.SetTask("meetings")
		c.FirstContext, c.FirstBatch = 512, 64
		c.Batch = max(1, 32768/length)
		c.Rate, c.MinRate = 2e-3, 2e-4
		c.EvalEvery, c.SaveEvery = max(1, steps/10), max(1, steps/10)
		c.EvalSamples, c.FinalSamples = pick(o.Budget, 20, 0, 0), pick(o.Budget, 40, 0, 0)
		l.open = func(folder string) (task.Source, error) { return openMeetings(folder, length) }
		l.Methods = pick(o.Budget, []method{softmax, linear, published2}, []method{linear, programmed2, farThird2, multipoleAdapted, softmax}, []method{linear, programmed2, farThird2, multipoleAdapted, softmax})
		if o.Budget == Hour && length > 4096 { // softmax alone would take hours
			l.Methods = l.Methods[:len(l.Methods)-1]
		}
		l.Seeds, l.Length, l.Vocab, l.Baseline = pick(o.Budget, 1, 1, 3), length, 257, true
		list = append(list, l)
	}
	return list, nil
})

// longDocsFindings put all lengths into one table, and say whether the simple methods win.
func longDocsFindings(out *Outcome, list []scored) error {
	t := report.Table{Title: "Accuracy in percent by length of the documents", Head: []string{"bytes", "mechanism", "accuracy", "± of the judged documents", "processor s", "best simple method"},
		Note: "Judged by documents of other meetings than those that are learned from; documents of one meeting stand or fall together, so that differences of a few points say nothing."}
	for i := range list {
		s := &list[i]
		best := task.Baseline{}
		for _, b := range s.Baselines {
			if b.Score > best.Score {
				best = b
			}
		}
		var better []string
		for _, x := range s.Results {
			n := float64(x.Runs[0].Score.Samples)
			cost := none
			if x.Runs[0].Cost > 0 {
				cost = fmt.Sprintf("%.0f", x.Runs[0].Cost)
			}
			addRow(&t, fmt.Sprint(s.Length), x.Label, fmt.Sprintf("%.1f", 100*x.Value), fmt.Sprintf("%.1f", 100*deviationOf(x.Value, n)), cost, fmt.Sprintf("%.1f, %s", 100*best.Score, best.Name))
			if x.Value-twoErrors(&x, &best) > best.Score {
				better = append(better, x.Label)
			}
		}
		out.find("%d bytes: better than %s with %.1f %% by more than the error of the samples: %s.", s.Length, best.Name, 100*best.Score, listed(better))
	}
	out.Tables = append([]report.Table{t}, out.Tables...)
	return nil
}
