package reproduce

import (
	"fmt"
	"slices"
	"strings"
)

// rows is the catalogue, in the order in which it is shown.
var rows = []*Row{
	&fastFig2,
	&fastFig3,
	&fastFig4,
	&fastFig5,
	&fastTable1,
	&fastTable2,
	&fastFig6,
	&fastKernel,
	&fastLocality,
	&fastGradients,
	&taylorShiftCrossover,
	&taylorShiftScaling,
	&taylorShiftHeads,
	&taylorShiftAccuracy,
	&linearFig1,
	&linearTable1,
	&linearTable2,
	&linearLatency,
	&linearCopy,
	&slidesShapes,
	&mqar,
	&needle,
	&byteLM,
	&listops,
	&carry,
}

// Rows returns the catalogue.
func Rows() []*Row { return slices.Clone(rows) }

// Lookup returns the row of that name. The error for a name that is not there
// lists those that are.
func Lookup(name string) (*Row, error) {
	var names []string
	for _, r := range rows {
		if r.Name == name {
			return r, nil
		}
		names = append(names, r.Name)
	}
	return nil, fmt.Errorf("no reproduction %q: there are %s", name, strings.Join(names, ", "))
}

// wanted are rows that RESULTS.md has with more than the quick budget: what they
// compare is less than what seeds differ by, or is not learned within minutes.
var wanted = map[string]Options{
	"fast-table1":          {Budget: Hour, Seeds: 3},
	"fast-fig4":            {Budget: Hour},
	"fast-fig5":            {Budget: Hour},
	"fast-locality":        {Budget: Hour},
	"taylorshift-heads":    {Budget: Hour},
	"taylorshift-accuracy": {Budget: Hour},
	"mqar":                 {Budget: Hour},
	"needle":               {Budget: Hour, Seeds: 1},
	"bytelm":               {Budget: Hour},
	"linear-table1":        {Budget: Hour},
	"listops":              {Budget: Hour, Seeds: 1},
}

// Wanted are the options that RESULTS.md has the row with.
func (r *Row) Wanted() Options { return wanted[r.Name] }

// scores lists rows whose numbers are scores and attention of trained models, never times.
// Seconds in their tables belong to the code that made them.
var scores = []*Row{
	&fastFig2,
	&fastFig4,
	&fastTable1,
	&fastLocality,
	&taylorShiftAccuracy,
	&linearCopy,
	&slidesShapes,
	&mqar,
}

// Decides returns the paths of the module whose code decides a row's numbers. A change of
// code may always change them. A change of arithmetic changes them only if its bits change
// (Bits). The lists stand here since an edit of a row's own file marks the row stale.
func (r *Row) Decides() (code, arithmetic []string) {
	code = append([]string{r.File()}, r.Code...)
	if !slices.Contains(scores, r) {
		return code, nil
	}
	code = slices.DeleteFunc(code, func(path string) bool {
		by := slices.Contains(modelCode, path)
		if by {
			arithmetic = append(arithmetic, path)
		}
		return by
	})
	return code, arithmetic
}

// Folders whose code decides what is computed.
var (
	attentionCode = []string{"attention", "mechanism", "internal/kernel", "internal/par", "internal/arena", "rng", "tensor"}
	modelCode     = append([]string{"model", "nn", "optim", "param"}, attentionCode...)
	timingCode    = append([]string{"internal/bench"}, attentionCode...)
)
