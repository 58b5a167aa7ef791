package reproduce

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/farfield-ml/farfield/internal/dataset"
	"github.com/farfield-ml/farfield/internal/exchange"
	"github.com/farfield-ml/farfield/internal/logistic"
	"github.com/farfield-ml/farfield/internal/task"
)

// useConfig is a method in MiniLM, judged by search and by classes.
type useConfig struct {
	Method   method `json:"method"`
	Meetings int    `json:"meetings"` // that are searched
	Reviews  int    `json:"reviews"`  // that teach, and as many that judge
}

// swapUse is what a user notices.
type swapUse struct {
	Questions int     `json:"questions"`
	Pieces    int     `json:"pieces"`
	MRR       float64 `json:"mrr"`
	Recall    float64 `json:"recall_at_5"`
	Reviews   int     `json:"reviews"`
	Right     float64 `json:"right"` // share of reviews, of a classifier that learned from vectors of the trained model
	Seconds   float64 `json:"seconds"`
}

// used is what all methods are judged by, with the vectors of the trained model.
type used struct {
	config     useConfig
	meetings   []searched
	classifier *logistic.Model
	reviews    [][]int32
	positive   []int32
}

// searched is a meeting in pieces, with the vectors of its questions.
type searched struct {
	pieces    [][]int32
	questions []question
}

type question struct {
	vector []float32
	gold   []int // pieces
}

const (
	useTokens    = 512
	reviewTokens = 256
)

// run judges a method.
func (c useConfig) run(w *Work, shared *exchangeShared) (any, error) {
	s, err := shared.open(miniLM, useTokens)
	if err != nil {
		return nil, err
	}
	u, err := shared.prepareUse(w, s, c)
	if err != nil {
		return nil, err
	}
	var book map[string][]float32
	if k, err := strconv.Atoi(c.Method.Set["cells"]); err == nil {
		of := &swapConfig{Model: miniLM, Tokens: useTokens, Calibration: []string{meetings}, Keys: 8192, Windows: 6}
		windows, err := shared.windows(s, of, meetings, true)
		if err != nil {
			return nil, err
		}
		list, err := exchange.Codebooks(w.Ctx, s, windows, []int{k}, 0)
		if err != nil {
			return nil, err
		}
		book = list[0]
	}
	y, err := swap(s, c.Method, book)
	if err != nil {
		return nil, err
	}
	begin := processorSeconds()
	x := swapUse{Reviews: len(u.reviews)}
	for _, m := range u.meetings {
		vectors, err := vectorsOf(w.Ctx, y, m.pieces)
		if err != nil {
			return nil, err
		}
		for _, q := range m.questions {
			rank := rankOf(q, vectors)
			x.Questions++
			x.MRR += 1 / float64(rank)
			if rank <= 5 {
				x.Recall++
			}
		}
		x.Pieces += len(m.pieces)
		w.reportShare(0.5)
	}
	x.MRR, x.Recall = x.MRR/float64(x.Questions), x.Recall/float64(x.Questions)
	vectors, err := vectorsOf(w.Ctx, y, u.reviews)
	if err != nil {
		return nil, err
	}
	for i, class := range u.classifier.Predict(matrixOf(vectors)) {
		if class == int(u.positive[i]) {
			x.Right += 1 / float64(len(u.reviews))
		}
	}
	x.Seconds = processorSeconds() - begin
	return x, nil
}

// vectorsOf returns the vectors of windows, of length 1.
func vectorsOf(ctx context.Context, s *exchange.Subject, windows [][]int32) ([][]float32, error) {
	ref, err := s.Ask(ctx, windows)
	if err != nil {
		return nil, err
	}
	list := ref.Vectors()
	for i, v := range list {
		var sum float64
		for _, x := range v {
			sum += float64(x) * float64(x)
		}
		unit := make([]float32, len(v))
		for j, x := range v {
			unit[j] = float32(float64(x) / math.Sqrt(sum))
		}
		list[i] = unit
	}
	return list, nil
}

// rankOf returns the place of the first piece with an answer, from 1 on.
func rankOf(q question, vectors [][]float32) int {
	score := func(i int) (sum float64) {
		for j, x := range vectors[i] {
			sum += float64(x) * float64(q.vector[j])
		}
		return sum
	}
	best := math.Inf(-1)
	for _, i := range q.gold {
		best = max(best, score(i))
	}
	rank := 1
	for i := range vectors {
		if !slices.Contains(q.gold, i) && score(i) > best {
			rank++
		}
	}
	return rank
}

// matrixOf returns vectors of length 1 as the rows of a matrix, with a mean square of 1.
func matrixOf(vectors [][]float32) *logistic.Matrix {
	x := &logistic.Matrix{Cols: len(vectors[0])}
	scale := float32(math.Sqrt(float64(x.Cols)))
	for _, v := range vectors {
		row := make([]float32, len(v))
		for j, y := range v {
			row[j] = scale * y
		}
		x.Add(nil, row)
	}
	return x
}

// prepareUse returns what methods are judged by. Questions and the reviews that teach have the vectors
// of the trained model.
func (x *exchangeShared) prepareUse(w *Work, s *exchange.Subject, c useConfig) (*used, error) {
	c.Method = method{}
	if x.use != nil && x.use.config.Meetings == c.Meetings && x.use.config.Reviews == c.Reviews {
		return x.use, nil
	}
	u := &used{config: c}
	list, err := readMeetings(x.o.Data, "test.jsonl")
	if err != nil {
		return nil, err
	}
	for i := range min(c.Meetings, len(list)) {
		m, err := x.cutMeeting(w.Ctx, s, &list[i])
		if err != nil {
			return nil, err
		}
		u.meetings = append(u.meetings, m)
	}
	for n, name := range []string{"imdb_train_10000.tsv.gz", "imdb_test_2500.tsv.gz"} {
		reviews, err := dataset.ReadFile(filepath.Join(x.o.Data, "imdb", name), dataset.ReadReviews)
		if err != nil {
			return nil, fmt.Errorf("%w; %w", err, task.ErrNoData)
		}
		windows, classes, err := x.cutReviews(reviews, c.Reviews)
		if err != nil {
			return nil, err
		}
		if n == 1 {
			u.reviews, u.positive = windows, classes
			break
		}
		vectors, err := vectorsOf(w.Ctx, s, windows)
		if err != nil {
			return nil, err
		}
		if u.classifier, _, err = logistic.FitBest(matrixOf(vectors), classes, 2, logistic.HoldOut(classes, 5)); err != nil {
			return nil, err
		}
	}
	x.use = u
	return u, nil
}

// cutReviews returns the first tokens of reviews, half of them positive, spread evenly.
func (x *exchangeShared) cutReviews(reviews []dataset.Review, n int) (windows [][]int32, classes []int32, err error) {
	byClass := [2][]dataset.Review{}
	for _, r := range reviews {
		class := 0
		if r.Positive {
			class = 1
		}
		byClass[class] = append(byClass[class], r)
	}
	for i := range n {
		list := byClass[i%2]
		r := list[i/2*len(list)/((n+1)/2)]
		w, err := x.opened.Windows(string(r.Text), reviewTokens)
		if err != nil {
			return nil, nil, err
		}
		windows, classes = append(windows, w[0]), append(classes, int32(i%2))
	}
	return windows, classes, nil
}

// cutMeeting returns a meeting in pieces. A piece answers a question if its first, middle or last token
// is of a turn that does. Questions that a third of the pieces answer are left out.
func (x *exchangeShared) cutMeeting(ctx context.Context, s *exchange.Subject, m *meeting) (y searched, err error) {
	var ids, turns []int32
	for i := range m.Turns {
		list, err := x.opened.Encode(m.turn(i), false)
		if err != nil {
			return y, err
		}
		ids = append(ids, list...)
		for range list {
			turns = append(turns, int32(i))
		}
	}
	special, err := x.opened.Encode("", true)
	if err != nil {
		return y, err
	}
	if len(special) != 2 {
		return y, fmt.Errorf("the model puts %d special tokens around a text, pieces are made for 2", len(special))
	}
	room := useTokens - len(special)
	var of [][3]int32 // turns of a piece
	for at := 0; at+room/2 <= len(ids); at += room {
		end := min(at+room, len(ids))
		piece := append([]int32{special[0]}, ids[at:end]...)
		y.pieces = append(y.pieces, append(piece, special[1]))
		of = append(of, [3]int32{turns[at], turns[(at+end)/2], turns[end-1]})
	}
	for _, q := range m.Queries {
		var gold []int
		for i, t := range of {
			if slices.ContainsFunc(q.Spans, func(span [2]string) bool {
				a, errA := strconv.Atoi(span[0])
				b, errB := strconv.Atoi(span[1])
				return errA == nil && errB == nil && slices.ContainsFunc(t[:], func(t int32) bool { return a <= int(t) && int(t) <= b })
			}) {
				gold = append(gold, i)
			}
		}
		if len(gold) == 0 || len(gold) > len(of)/3 {
			continue
		}
		text, err := x.opened.Windows(q.Query, 128)
		if err != nil {
			return y, err
		}
		v, err := vectorsOf(ctx, s, text[:1])
		if err != nil {
			return y, err
		}
		y.questions = append(y.questions, question{v[0], gold})
	}
	return y, nil
}
