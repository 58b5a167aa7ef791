package task

import (
	"fmt"
	"path/filepath"
	"slices"

	"github.com/farfield-ml/farfield/internal/dataset"
)

// ownData holds what all tasks of the user's own files share: class names, and samples
// by split.
type ownData[T any] struct {
	name    string // in the catalogue
	kind    Kind   // Class, Regression or Labels
	length  int    // positions of the longest sample
	classes []string
	ordered bool // samples lie in the order of their classes
	parts   [3][]T
	ignored ignoredFiles // of the folder of the data

	missing error // names a class without training samples; nil: none
}

// ClassNames returns the names of the classes, in the order of their numbers.
func (d *ownData[T]) ClassNames() []string { return slices.Clone(d.classes) }

func (d *ownData[T]) isClassOrdered() bool { return d.ordered }

func (d *ownData[T]) ignoredFiles() ignoredFiles { return d.ignored }

func (d *ownData[T]) checkTraining() error { return d.missing }

// setMissing sets missing if the seed draws no training sample of a class. mark sets the classes
// of a sample in seen. items names the samples.
func (d *ownData[T]) setMissing(items string, mark func(s *T, seen []bool)) {
	seen := make([]bool, len(d.classes))
	for i := range d.parts[Train] {
		mark(&d.parts[Train][i], seen)
	}
	if class := slices.Index(seen, false); class >= 0 {
		d.missing = fmt.Errorf("class %q: the data seed draws none of its %s to learn from; add %s, or draw with another seed", d.classes[class], items, items)
	}
}

// hasSamples reports whether there are training samples, or with scoreOnly samples of any split.
func (d *ownData[T]) hasSamples(scoreOnly bool) bool {
	n := len(d.parts[Train])
	if scoreOnly {
		n += len(d.parts[Valid]) + len(d.parts[Test])
	}
	return n > 0
}

// spec returns the specification without the width of a position.
func (d *ownData[T]) spec() Spec {
	s := Spec{Name: d.name, Length: d.length, Parts: 1, Count: [3]int{len(d.parts[0]), len(d.parts[1]), len(d.parts[2])}}
	setTarget(&s, d.kind, len(d.classes))
	return s
}

// setTarget sets kind and metric: one number per sample for Regression, classes otherwise.
func setTarget(s *Spec, kind Kind, classes int) {
	s.Kind, s.Metric, s.Classes = kind, Accuracy, classes
	if kind == Regression {
		s.Metric, s.Classes, s.Outputs = MSE, 0, 1
	}
}

// targetKind returns the kind of target that a setting names: class, number, or labels,
// whose word differs between tasks.
func (o *settingsReader) targetKind(name, labels string) Kind {
	switch o.oneOf(name, "class", "number", labels) {
	case "number":
		return Regression
	case labels:
		return Labels
	}
	return Class
}

// fieldSeparator returns the separator of a table by its suffix, plain or compressed: .csv, .tsv, or .txt, which
// spreadsheets give to text with tabs.
func fieldSeparator(path string) (comma rune, ok bool) {
	comma, ok = map[string]rune{".csv": ',', ".tsv": '\t', ".txt": '\t'}[filepath.Ext(dataset.TrimSuffix(path))]
	return comma, ok
}
