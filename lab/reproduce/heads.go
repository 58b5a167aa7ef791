package reproduce

import (
	"context"
	"math"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/inference"
	"github.com/farfield-ml/farfield/internal/report"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/tensor"
)

// headPlace is a head of a model, layers and heads counted from 0.
type headPlace struct {
	Layer int `json:"layer"`
	Head  int `json:"head"`
}

// eachHead runs one sequence through a model and shows see the attention matrix
// [N,M] of every head, which see may keep.
func eachHead(m *model.Model, b *model.Batch, see func(headPlace, tensor.Mat)) error {
	layer, last := -1, ""
	defer model.Watch(m, func(name string, of attention.Mechanism, call *attention.Call) error {
		if name != last {
			layer, last = layer+1, name
		}
		for h := range call.Q.H {
			a := tensor.Mat{Data: make([]float32, call.Q.N*call.K.N), Rows: call.Q.N, Cols: call.K.N, Stride: call.K.N}
			if err := of.Weights(a, call, 0, h, 0, call.Q.N); err != nil {
				return err
			}
			see(headPlace{layer, h}, a)
		}
		return nil
	})()
	_, _, err := m.Vectors(context.Background(), nil, b)
	return err
}

// shownHeads are how many heads of a model are drawn.
const shownHeads = 4

// spreadHeads returns the heads that are drawn of a model, the same of every
// mechanism: evenly from the first of the first layer to the last of the last.
func spreadHeads(c model.Config) (list []headPlace) {
	for i := range shownHeads {
		list = append(list, headPlace{i * (c.Layers - 1) / (shownHeads - 1), i * (c.Heads - 1) / (shownHeads - 1)})
	}
	return list
}

// headMap is the attention matrix of a head, [rows,cols].
type headMap struct {
	headPlace
	Rows    int       `json:"rows"`
	Cols    int       `json:"cols"`
	Weights []float64 `json:"weights"` // to five digits behind the point
}

func newHeadMap(at headPlace, a tensor.Mat) headMap {
	m := headMap{at, a.Rows, a.Cols, make([]float64, len(a.Data))}
	for i, w := range a.Data {
		m.Weights[i] = math.Round(float64(w)*1e5) / 1e5
	}
	return m
}

// heat is the matrix as it is drawn.
func (m *headMap) heat(title string) report.Heat {
	return report.Heat{Title: title, Rows: m.Rows, Cols: m.Cols, Values: m.Weights, X: report.Axis{Label: "keys"}, Y: report.Axis{Label: "queries"}}
}

// few is the share of the queries of a text that see too few keys to be compared with
// the others by their weights.
const few = 4

// textHeat is the matrix of a text with its letters. Colours end at the largest weight
// of the queries behind the first quarter.
func (m *headMap) textHeat(title string, letters []string) report.Heat {
	h := m.heat(title)
	h.X.Ticks, h.Y.Ticks = letters, letters
	for _, w := range m.Weights[m.Rows/few*m.Cols:] {
		h.ColourMin, h.ColourMax = min(h.ColourMin, w), max(h.ColourMax, w)
	}
	return h
}

// locality is inference.Locality as numbers to be averaged.
type locality struct {
	Entropy  float64 `json:"entropy"`
	Distance float64 `json:"distance"`
	Diagonal float64 `json:"diagonal"`
	Column   float64 `json:"column"`
}

func localityOf(a tensor.Mat) locality {
	l := inference.Locate(a, 0)
	return locality{l.Entropy, l.Distance, l.Diagonal, l.Column}
}

// uniform is the locality of equal weights of the keys that n queries see.
func uniform(n int, causal bool) locality {
	a := tensor.Mat{Data: make([]float32, n*n), Rows: n, Cols: n, Stride: n}
	for i := range n {
		row := a.Row(i)
		if causal {
			row = row[:i+1]
		}
		for j := range row {
			row[j] = 1
		}
	}
	return localityOf(a)
}

// meanLocality returns the means of a list.
func meanLocality(list []locality) (m locality) {
	n := float64(len(list))
	for _, l := range list {
		m.Entropy += l.Entropy / n
		m.Distance += l.Distance / n
		m.Diagonal += l.Diagonal / n
		m.Column += l.Column / n
	}
	return m
}

// cells are the numbers as they stand in tables.
func (l locality) cells() []string {
	return []string{digits(l.Entropy), digits(l.Distance), digits(l.Diagonal), digits(l.Column)}
}

// localityHead names them.
var localityHead = []string{"entropy, nats", "distance, tokens", "diagonal", "column"}

// localityNote says what they are.
const localityNote = "Means over queries and heads. Entropy −Σ p ln p of the shares p of absolute weight; distance Σ p |j − i|; diagonal: the share of the query's own place; column: the share of the key that has most of all."
