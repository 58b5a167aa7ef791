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
	&linearLSH,
	&linearLatency,
	&linearCopy,
	&slidesShapes,
	&mqar,
	&needle,
	&byteLM,
	&listops,
	&arenaAll,
	&arenaMinutes,
	&pairsRow,
	&longDocs,
	&largePictures,
	&spokenDigits,
	&longSignal,
	&carry,
	&multipoleOfInput,
	&exchangeRow,
	&multipoleSpeed,
	&multipoleWhole,
	&multipoleScratch,
	&precision,
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
