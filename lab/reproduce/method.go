package reproduce

import (
	"fmt"

	"github.com/farfield-ml/farfield/mechanism"
	"github.com/farfield-ml/farfield/train"
)

// method is a mechanism with settings, as it stands in tables.
type method struct {
	Label string `json:"-"`
	// change, if not nil, makes what else is its own of a training.
	change func(*train.Config)
	// Single methods are trained with one seed, whatever the lesson has.
	Single bool              `json:"-"`
	Name   string            `json:"mechanism"`
	Order  int               `json:"order,omitempty"`
	Set    map[string]string `json:"set,omitempty"`
}

var (
	softmax     = method{Label: "softmax", Name: "softmax"}
	linear      = method{Label: "linear", Name: "linear"}
	mamba2      = method{Label: "mamba-2", Name: "mamba-2"}
	retnet      = method{Label: "retnet", Name: "retnet"}
	fastmax1    = method{Label: "fastmax 1, bounded", Name: "fastmax", Order: 1, Set: map[string]string{"bounded": "true", "scale": "1", "window": "0"}}
	fastmax2    = method{Label: "fastmax 2", Name: "fastmax", Order: 2, Set: map[string]string{"bounded": "false", "scale": "1/sqrt(D)", "window": "0"}}
	published2  = method{Label: "fastmax 2, scale 1", Name: "fastmax", Order: 2, Set: map[string]string{"bounded": "false", "scale": "1", "window": "0"}}
	published1  = method{Label: "fastmax 1, scale 1", Name: "fastmax", Order: 1, Set: map[string]string{"bounded": "false", "scale": "1", "window": "0"}}
	taylorshift = method{Label: "taylorshift", Name: "taylorshift", Set: map[string]string{"tau": "sqrt(D)", "window": "0"}}
)

// FAST's function as it is printed, and as the program of its authors has it (example.py of
// armingerami/fastmax): rows are divided by the longest of the sequence, and not each by its own
// deviation.
var (
	printed1    = named(published1, "fastmax 1 as printed")
	printed2    = named(published2, "fastmax 2 as printed")
	programmed1 = method{Label: "fastmax 1 as programmed", Name: "polynomial", Set: map[string]string{"norm": "max", "scale": "1", "coef": "1,1"}}
	programmed2 = method{Label: "fastmax 2 as programmed", Name: "polynomial", Set: map[string]string{"norm": "max", "scale": "1", "coef": "1,1,1/2"}}
)

// linearPadded is linear attention as the arena's program has it: all samples are padded to one
// length, which nothing masks. Such samples do not grow.
var linearPadded = method{Label: "linear, padded without masks", Name: "linear", change: func(c *train.Config) {
	c.LRAQuirk, c.FirstContext, c.FirstBatch = true, 0, 0
}}

// multipoleAdapted has cells that are fitted to the keys of each sequence, from a drawn codebook:
// it learns from scratch, and is not causal.
var multipoleAdapted = method{Label: "multipole, 64 cells fitted to the input", Name: "multipole", Set: map[string]string{
	"cells": "64", "adapt": "2", "block": "32", "window": "16", "sinks": "1", "ends": "1",
}}

// named returns m with another label.
func named(m method, label string) method {
	m.Label = label
	return m
}

// nearKeys is the number of keys of the near field: the query's own and those before it.
const nearKeys = 64

// Near field exact, far field factorised; and the near field alone, with the same keys.
var (
	nearFar2    = nearFar(2)
	farThird    = thirdNearFar(4)
	farThird2   = thirdNearFar(2) // of encoders
	windowAlone = method{Label: fmt.Sprintf("window alone, %d keys", nearKeys), Name: "local",
		Set: map[string]string{"span": fmt.Sprint(nearKeys), "scale": "1/sqrt(D)"}}
)

// nearFar is exp(q·k/√D) of the near keys and T_p of normalised rows of all others, under
// one denominator. Order 2 has a learned temperature, as in training by default. Every
// setting is named, whatever the defaults are.
func nearFar(order int) method {
	tau := "none"
	if order == 2 {
		tau = "1"
	}
	return method{Label: fmt.Sprintf("near-far %d", order), Name: "fastmax", Order: order, Set: map[string]string{
		"bounded": "false", "scale": "1/sqrt(D)", "window": fmt.Sprint(nearKeys), "join": "denominator", "gamma": "1", "tau": tau,
	}}
}

// thirdNearFar has a learned temperature, and adds the norm of each head's output. Each
// third layer has the far field, from the first, and the others the near field alone.
func thirdNearFar(order int) method {
	m := nearFar(order)
	m.Label += ", each third layer"
	m.Set["tau"] = "1"
	m.change = func(c *train.Config) { c.Model.AttentionNorm, c.FarEvery = true, 3 }
	return m
}

// single returns m as a method that is trained with one seed.
func single(m method) method {
	m.Single = true
	return m
}

// otherMark marks published numbers of another function than the one beside them.
// otherFastmax says how the functions of FAST's tables differ from the labelled ones.
const (
	otherMark    = "†"
	otherFastmax = otherMark + " The paper's Fastmax is another function: rows of mean 0 and deviation 1, scores as they are. Here fastmax 1 bounds rows to length 1, so that no weight is negative, and fastmax 2 divides scores by √D."
)

// contenders are those whose learning is compared.
var contenders = []method{softmax, fastmax1, fastmax2, taylorshift, linear}

// file is a label as part of a file's name.
func (m *method) file() string {
	name := []byte(m.Label)
	for i, c := range name {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			name[i] = '-'
		}
	}
	return string(name)
}

func (m *method) options(heads, width, length int) mechanism.Options {
	return mechanism.Options{Order: m.Order, Heads: heads, Width: width, Length: length, Set: m.Set}
}
