package reproduce

import (
	"fmt"
	"strconv"

	"github.com/farfield-ml/farfield/internal/exchange"
	"github.com/farfield-ml/farfield/internal/logistic"
	"github.com/farfield-ml/farfield/internal/report"
	"github.com/farfield-ml/farfield/internal/task"
)

// encoderConfig is a method in MiniLM. A linear classifier reads its vectors of the first Tokens tokens
// of documents of Bytes bytes.
type encoderConfig struct {
	Method method `json:"method"`
	Bytes  int    `json:"bytes"`  // of a document
	Tokens int    `json:"tokens"` // of a document that are read
	Most   int    `json:"most"`   // documents that teach at most, and as many that judge
}

func (c *encoderConfig) name() string {
	return fmt.Sprintf("encoder-%dk-%s", c.Bytes>>10, c.Method.file())
}

// encoded is what came of it.
type encoded struct {
	Learned int     `json:"learned"`
	Judged  int     `json:"judged"`
	Right   float64 `json:"right"`
	Seconds float64 `json:"seconds"` // of processor time, for the vectors that judge
}

// encoderConfigs lists the methods for each length. A token of MiniLM has about four bytes.
func encoderConfigs(o *Options) (list []encoderConfig) {
	if o.Budget == Quick {
		return nil
	}
	for _, bytes := range []int{4096, 16384, 32768} {
		for _, m := range []method{softmax, multipoleInput("0.1"), multipoleOf(256, 0, swapBlock, swapWindow), nearOf(swapBlock, swapWindow)} {
			list = append(list, encoderConfig{m, bytes, bytes / 4, min(200, (1<<20)/bytes*2)})
		}
	}
	return list
}

// longDocsPieces are trainings, and MiniLM with each method.
func longDocsPieces(o *Options) ([]Piece, error) {
	list, err := longDocsLessons.pieces(o)
	shared := &exchangeShared{o: o}
	for _, c := range encoderConfigs(o) {
		flops := (&swapConfig{Model: miniLM, Tokens: c.Tokens}).passFLOPs() * float64(2*c.Most*c.Tokens)
		list = append(list, Piece{Name: c.name(), Config: c, FLOPs: flops, run: func(w *Work) (any, error) { return c.run(w, shared) }})
	}
	return list, err
}

// run fits a classifier to the vectors of documents to learn from, and judges it by those of others.
// Both are of the model with the method.
func (c *encoderConfig) run(w *Work, shared *exchangeShared) (any, error) {
	docs, err := openMeetings(shared.o.Data, c.Bytes)
	if err != nil {
		return nil, err
	}
	s, err := shared.open(miniLM, c.Tokens)
	if err != nil {
		return nil, err
	}
	teach, kinds, err := docs.windows(shared, task.Train, c)
	if err != nil {
		return nil, err
	}
	var book map[string][]float32
	if k, err := strconv.Atoi(c.Method.Set["cells"]); err == nil {
		list, err := exchange.Codebooks(w.Ctx, s, teach[:min(len(teach), max(1, 16384/c.Tokens))], []int{k}, 0)
		if err != nil {
			return nil, err
		}
		book = list[0]
	}
	y, err := swap(s, c.Method, book)
	if err != nil {
		return nil, err
	}
	vectors, err := vectorsOf(w.Ctx, y, teach)
	if err != nil {
		return nil, err
	}
	w.reportShare(0.5)
	classifier, _, err := logistic.FitBest(matrixOf(vectors), kinds, len(meetingKinds), logistic.HoldOut(kinds, 5))
	if err != nil {
		return nil, err
	}
	judge, kinds, err := docs.windows(shared, task.Test, c)
	if err != nil {
		return nil, err
	}
	begin := processorSeconds()
	if vectors, err = vectorsOf(w.Ctx, y, judge); err != nil {
		return nil, err
	}
	x := encoded{Learned: len(teach), Judged: len(judge), Seconds: processorSeconds() - begin}
	right := 0
	for i, kind := range classifier.Predict(matrixOf(vectors)) {
		if kind == int(kinds[i]) {
			right++
		}
	}
	x.Right = float64(right) / float64(len(judge))
	return x, nil
}

// windows returns the first tokens of documents of a split, spread evenly, and their kinds.
func (t *meetingParts) windows(shared *exchangeShared, split task.Split, c *encoderConfig) (list [][]int32, kinds []int32, err error) {
	all := t.parts[split]
	n := min(c.Most, len(all))
	for i := range n {
		d := all[i*len(all)/n]
		w, err := shared.opened.Windows(string(d.text[d.from:d.to]), c.Tokens)
		if err != nil {
			return nil, nil, err
		}
		list, kinds = append(list, w[0]), append(kinds, d.kind)
	}
	return list, kinds, nil
}

// longDocsOutcome adds what MiniLM's vectors tell.
func longDocsOutcome(o *Options, r *Results) (*Outcome, error) {
	out, err := longDocsLessons.outcome(longDocsFindings)(o, r)
	if err != nil {
		return nil, err
	}
	t := report.Table{Title: "A linear classifier over the vectors of MiniLM", Head: []string{"bytes", "tokens read", "attention of MiniLM", "accuracy, %", "± of the judged documents", "processor s", "learned from", "judged by"},
		Note: "All layers of all-MiniLM-L6-v2 exchanged, positions interpolated, nothing trained but the classifier. A codebook is made of documents to learn from. Seconds of the vectors of all judged documents. Near keys alone: block 32, window 16."}
	for _, c := range encoderConfigs(o) {
		x, found, err := get[encoded](r, c.name())
		if err != nil {
			return nil, err
		}
		if found {
			addRow(&t, fmt.Sprint(c.Bytes), fmt.Sprint(c.Tokens), c.Method.Label, fmt.Sprintf("%.1f", 100*x.Right), fmt.Sprintf("%.1f", 100*deviationOf(x.Right, float64(x.Judged))),
				digits(x.Seconds), fmt.Sprint(x.Learned), fmt.Sprint(x.Judged))
		}
	}
	if len(t.Rows) > 0 {
		out.Tables = append(out.Tables[:1:1], append([]report.Table{t}, out.Tables[1:]...)...)
	}
	return out, nil
}
