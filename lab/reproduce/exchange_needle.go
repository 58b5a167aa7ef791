package reproduce

import (
	"fmt"
	"strconv"
	"time"

	"github.com/farfield-ml/farfield/internal/exchange"
	"github.com/farfield-ml/farfield/internal/task"
)

// needleSwap is a method in a softmax model of needle, whose lines it is asked for.
type needleSwap struct {
	Method method `json:"method"`
	Steps  int    `json:"steps"`
	Length int    `json:"length"`
	Count  int    `json:"windows"`
	Keys   int    `json:"keys"` // tokens of the calibration
	Seed   uint64 `json:"seed"`
}

// needleMethods are asked for lines at every length.
func needleMethods() []method {
	causal := func(tol string) method {
		return method{Label: "multipole, clusters of the input, tol " + tol, Name: exchange.Name, Set: map[string]string{"centres": "input", "tol": tol}}
	}
	return []method{softmax, causal("0.05"), causal("0.1"), causal("0.3"), multipoleOf(256, 0, swapBlock, swapWindow), multipoleOf(256, 1, swapBlock, swapWindow), multipoleOf(1024, 0, swapBlock, swapWindow), multipoleFitted(256, 0, swapBlock, swapWindow), multipoleFitted(1024, 0, swapBlock, swapWindow), nearOf(swapBlock, swapWindow), windowAlone,
		{Label: "performer, 256 features", Name: "performer", Set: map[string]string{"features": "256"}},
		{Label: "reformer, chunks of 64, 8 rounds", Name: "reformer", Set: map[string]string{"bucket": "64", "rounds": "8"}}}
}

// needleSwaps are the pieces of needle.
func needleSwaps(o *Options, shared *exchangeShared) (list []Piece, err error) {
	steps := pick(o.Budget, 600, 3000, 10000)
	l, err := trainedLesson("needle", steps)
	if err != nil {
		return nil, err
	}
	config := l.configFor(&softmax, 1, 1)
	training := l.flops(&config)
	for _, of := range needleAsked {
		if o.Budget == Quick && of.length > needleContext {
			continue
		}
		for _, m := range needleMethods() {
			windows := pick(o.Budget, 4, 16, 64)
			if m.Name == softmax.Name || m.Set["centres"] == "input" {
				windows = pick(o.Budget, 4, 128, 128) // a point of difference takes many lines
			}
			c := needleSwap{Method: m, Steps: steps, Length: of.length, Count: max(windows*needleContext/of.length, 2), Keys: 32768}
			flops := 2 * float64(c.Count*c.Length) * (2*100e3 + 6*4*64*float64(c.Length)/2)
			if len(list) == 0 {
				flops += training
			}
			list = append(list, Piece{Name: fmt.Sprintf("needle-%dk-%s", of.length>>10, m.file()), Config: c, FLOPs: flops, run: func(w *Work) (any, error) { return c.run(w, shared) }})
		}
	}
	return list, nil
}

// swappedNeedles is what came of a method.
type swappedNeedles struct {
	Refused string        `json:"refused,omitempty"`
	Answers needleAnswers `json:"answers"`
	Seconds float64       `json:"seconds"` // of processors
}

// run trains the model, if it is not there, and asks.
func (c needleSwap) run(w *Work, shared *exchangeShared) (any, error) {
	t, err := shared.trainer(w, "needle", c.Steps)
	if err != nil {
		return nil, err
	}
	defer t.Close()
	src := t.Source().(task.WindowSource)
	s := &exchange.Subject{Model: t.Model()}
	var book map[string][]float32
	if k, err := strconv.Atoi(c.Method.Set["cells"]); err == nil && c.Method.Name == exchange.Name {
		var windows [][]int32
		for i := range max(1, c.Keys/needleContext) {
			var x task.Sample
			if err := src.WithWindow(needleContext).Sample(&x, task.Train, i); err != nil {
				return nil, err
			}
			windows = append(windows, x.Tokens)
		}
		list, err := exchange.Codebooks(w.Ctx, s, windows, []int{k}, c.Seed)
		if err != nil {
			return nil, err
		}
		if book, err = c.Method.fitted(w.Ctx, s, windows, list[0]); err != nil {
			return nil, err
		}
	}
	x := swappedNeedles{Answers: needleAnswers{Length: c.Length, Windows: c.Count}}
	y, err := swap(s, c.Method, book)
	if err != nil {
		x.Refused = err.Error()
		return x, nil
	}
	start, begin := time.Now(), processorSeconds()
	err = w.do(func() error {
		for i := range c.Count {
			var of task.Sample
			if err := src.WithWindow(c.Length).Sample(&of, task.Test, i); err != nil {
				return err
			}
			if err := x.Answers.ask(y.Model, &of); err != nil {
				x.Refused = err.Error()
				return nil
			}
			if w.Ctx.Err() != nil {
				return w.Ctx.Err()
			}
			w.reportShare(float64(i+1) / float64(c.Count))
		}
		return nil
	})
	x.Answers.Seconds, x.Seconds = time.Since(start).Seconds(), processorSeconds()-begin
	return x, err
}
