package task

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// OpenLabelled opens the user's own texts for a model that has learned its classes. The settings in
// o are those of task file, o.Tokens are the model's, and o.Context bounds the tokens of a text.
// names are the model's classes; nil: labels are numbers. Either all labels are in names, in upper
// or lower case, or all are numbers below len(names). If o.EncodePair is set, rows have a second
// text, in the column pair or in the one that the setting pair names. OpenLabelled returns an error
// where Open does, for a label that is no class of the model, and if two labels mean one class.
func OpenLabelled(o Options, names []string) (*OwnTexts, error) {
	row, err := Lookup(ownName)
	if err != nil {
		return nil, err
	}
	pair := ""
	if o.EncodePair != nil {
		o.Settings = maps.Clone(o.Settings)
		pair = cmp.Or(o.Settings["pair"], "pair")
		delete(o.Settings, "pair")
	}
	op := newSettingsReader(&row, o)
	op.refuseUnknown()
	kind := Class
	if names == nil {
		kind = Regression
	}
	if value := o.Settings["target"]; value != "" && op.targetKind("target", "bytes") != kind && op.err == nil {
		op.err = fmt.Errorf("setting target: %s, the model has %v", value, kind)
	}
	if o.Settings["vocabulary"] != "" && op.err == nil {
		op.err = fmt.Errorf("setting vocabulary: %s, the model has tokens of its own", o.Settings["vocabulary"])
	}
	length := 0 // the longest text
	if o.Settings["length"] != "" {
		if length = op.int("length"); op.err == nil {
			op.err = checkRange("setting length", length, 1, 1<<24)
		}
	}
	if op.err != nil {
		return nil, op.err
	}
	t, err := readOwnTexts(op.text("data"), kind, ownColumns{op.text("text"), op.text("label"), pair}, o.splitter(), true)
	if err != nil {
		return nil, err
	}
	if names != nil {
		if err := t.numberClasses(names); err != nil {
			return nil, fmt.Errorf("%s: %w", op.text("data"), err)
		}
	}
	if pair != "" {
		err = t.encodePairs(o.Tokens, o.EncodePair, length)
	} else {
		err = t.encodeTexts(o.Tokens, max(length, 1), 0)
	}
	if err != nil {
		return nil, err
	}
	if t.length = length; length == 0 {
		for _, part := range t.parts {
			for i := range part {
				t.length = max(t.length, len(part[i].ids))
			}
		}
	}
	if o.Context > 0 {
		t.length = min(t.length, o.Context)
	}
	t.start, t.canLengthen = "fine-tune it on such texts with train --init", o.Context == 0 || t.length < o.Context
	return t, nil
}

// numberClasses replaces the classes by names.
func (t *OwnTexts) numberClasses(names []string) error {
	numbers, err := matchClasses(t.classes, names)
	if err != nil {
		return err
	}
	for _, part := range t.parts {
		for i := range part {
			part[i].class = numbers[part[i].class]
		}
	}
	t.classes = slices.Clone(names)
	return nil
}

// matchClasses returns the number in names of each class. One rule holds for all classes: each
// is a name in names, or a name in another case; else each is a number below len(names). It
// returns an error if neither rule holds, or two classes have one number.
func matchClasses(classes, names []string) ([]int32, error) {
	byName, byNumber := make([]int32, len(classes)), make([]int32, len(classes))
	for i, class := range classes {
		at := slices.Index(names, class)
		if at < 0 {
			at = slices.IndexFunc(names, func(name string) bool { return strings.EqualFold(name, class) })
		}
		n, err := strconv.Atoi(class)
		if err != nil || n < 0 || n >= len(names) {
			n = -1
		}
		if at < 0 && n < 0 {
			return nil, fmt.Errorf("label: %q is no class of the model, %q, nor a number below %d", class, names, len(names))
		}
		byName[i], byNumber[i] = int32(at), int32(n)
	}
	numbers := byName
	if at := slices.Index(byName, -1); at >= 0 {
		if n := slices.Index(byNumber, -1); n >= 0 {
			return nil, fmt.Errorf("label: %q is no class of the model, %q, and %q no number below %d; all labels are names, or all are numbers", classes[at], names, classes[n], len(names))
		}
		numbers = byNumber
	}
	owner := make([]int, len(names)) // 1 + the index of the class that has the number
	for i, n := range numbers {
		if owner[n] > 0 {
			return nil, fmt.Errorf("label: %q and %q are both class %d of the model, %q", classes[owner[n]-1], classes[i], n, names[n])
		}
		owner[n] = i + 1
	}
	return numbers, nil
}

// TestOnly returns the task with all texts in the test set.
func (t *OwnTexts) TestOnly() *OwnTexts {
	w := *t
	w.parts = [3][]ownText{Test: slices.Concat(t.parts[:]...)}
	return &w
}

// JudgedBaselines returns baselines for the split by which the task is judged. If there are no
// training texts, they are the commonest class, or the mean, of the judged texts themselves. If all
// targets are equal, there are none. JudgedBaselines returns an error if a text cannot be read.
func (t *OwnTexts) JudgedBaselines() ([]Baseline, error) {
	if len(t.parts[Train]) > 0 {
		list, err := t.Baselines(0)
		return unlessCertain(list), err
	}
	return scoreInHindsight(t, t.advice())
}

// unlessCertain returns list, or nil if the commonest class or label, or the mean, is right about all
// that is judged: targets are equal then, and tell nothing of a model.
func unlessCertain(list []Baseline) []Baseline {
	for _, b := range list {
		switch b.Name {
		case majorityName, majorityLabelName:
			if b.Score == 1 {
				return nil
			}
		case meanName:
			if b.Score == 0 {
				return nil
			}
		}
	}
	return list
}

// hindsight is a source whose training samples are the judged ones.
type hindsight struct {
	Source
}

// Spec returns the specification with the judged samples as training set.
func (h hindsight) Spec() Spec {
	spec := h.Source.Spec()
	spec.Count[Train] = spec.Count[spec.JudgedSplit()]
	return spec
}

// Sample overwrites s with a sample of the source, and returns the source's errors.
func (h hindsight) Sample(s *Sample, split Split, i int) error {
	if spec := h.Source.Spec(); split == Train {
		split = spec.JudgedSplit()
	}
	return h.Source.Sample(s, split, i)
}

// scoreInHindsight scores the commonest class or label of the judged samples, or the mean of
// their numbers, unless targets are all equal. scoreInHindsight returns an error if a sample cannot be read.
func scoreInHindsight(src Source, advice string) ([]Baseline, error) {
	score := scoreMajority
	switch src.Spec().Kind {
	case Class:
	case Regression:
		score = scoreMeanTarget
	case Labels:
		score = scoreMajorityLabel
	default:
		return nil, nil
	}
	b, err := score(hindsight{src}, 0)
	if err != nil {
		return nil, err
	}
	b.Learned, b.Advice = 0, advice // it has learned no sample that is not judged
	return unlessCertain([]Baseline{b}), nil
}

// learnedSource is a source of other data for a model that has learned classes or scales.
type learnedSource struct {
	Source
	spec    Spec
	names   []string
	numbers []int32 // of the model's classes, by class of the source; nil: there are none
	own     *Scales // of the source; nil: targets are not scaled
	scales  *Scales // of the model
	hasAll  bool
}

// NumberAsLearned returns src in the numbers that a trained model has learned: classes have the
// numbers of their names in names, and targets are divided by scales, unless they are nil. With
// hasAll, all samples are in the test set. Baselines are those of src in the model's scales. If
// there are no training samples, they are the commonest class or label, or the mean, of the test
// set; if all targets are equal, there are none. NumberAsLearned returns an error if a class is not
// in names, if scales are unknown, or if the samples have no end.
func NumberAsLearned(src Source, names []string, scales *Scales, hasAll bool) (Source, error) {
	t := &learnedSource{Source: src, spec: src.Spec(), names: names, scales: scales, hasAll: hasAll}
	if named, ok := src.(ClassNamer); ok && names != nil {
		number := make(map[string]int32, len(names))
		for i, name := range names {
			number[name] = int32(i)
		}
		for _, name := range named.ClassNames() {
			n, ok := number[name]
			if !ok {
				const most = 20
				return nil, fmt.Errorf("label: %q is none of the %d classes that the model learned: %q", name, len(names), names[:min(most, len(names))])
			}
			t.numbers = append(t.numbers, n)
		}
		t.spec.Classes = len(names)
	}
	if scaled, ok := src.(ScaledSource); ok {
		t.own = scaled.Scales()
	}
	if t.own != nil && (scales == nil || len(scales.Mean) != len(t.own.Mean)) {
		return nil, fmt.Errorf("scales: of the numbers that the model learned they are not known; farfield train --resume writes them to the folder of the run")
	}
	if hasAll {
		if slices.Contains(t.spec.Count[:], Endless) {
			return nil, fmt.Errorf("task %s draws samples without end, there is no set of all", t.spec.Name)
		}
		t.spec.Count = [3]int{Test: t.spec.Count[Train] + t.spec.Count[Valid] + t.spec.Count[Test]}
	}
	return t, nil
}

// BaselinesFrom lets the baselines learn from the training and validation samples of learned, the
// data of a run, and scores them on all samples of judged, which NumberAsLearned returned with
// hasAll. ok is false if the two do not come from the same kind of files. BaselinesFrom returns an
// error if a sample cannot be read.
func BaselinesFrom(learned, judged Source) (list []Baseline, ok bool, err error) {
	if pairs, is := judged.(*TextPairs); is {
		own, has := learned.(*TextPairs)
		if !has || len(own.parts[Train]) == 0 {
			return nil, false, nil
		}
		src := *own
		src.parts = [3][]TextPair{Train: own.parts[Train], Test: slices.Concat(pairs.parts[:]...)}
		list, err = src.Baselines(0)
		return list, true, err
	}
	if s, is := judged.(*standardisedSource); is {
		judged = s.Source
	}
	t, is := judged.(*learnedSource)
	own, has := learned.(interface {
		withTest(judged Source, number func(class int32) int32) Source
	})
	if !is || !has || !t.hasAll {
		return nil, false, nil
	}
	src := own.withTest(t.Source, func(class int32) int32 {
		if t.numbers == nil {
			return class
		}
		return t.numbers[class]
	})
	if src == nil || src.Spec().Count[Train] == 0 {
		return nil, false, nil
	}
	list, err = Baselines(src, 0)
	return unlessCertain(list), true, err
}

// renumber returns all items of parts in their order, changed by set.
func renumber[T any](parts [3][]T, set func(item *T)) []T {
	all := slices.Concat(parts[:]...)
	for i := range all {
		set(&all[i])
	}
	return all
}

// withTest returns t with all texts of judged as test set; nil: they are no texts.
func (t *OwnTexts) withTest(judged Source, number func(class int32) int32) Source {
	other, ok := judged.(*OwnTexts)
	if !ok || other.kind != t.kind {
		return nil
	}
	w := *t
	w.parts[Test] = renumber(other.parts, func(x *ownText) {
		if t.kind == Class {
			x.class = number(x.class)
		}
	})
	return &w
}

// withTest returns t with all pictures of judged as test set; nil: they are no pictures.
func (t *Pictures) withTest(judged Source, number func(class int32) int32) Source {
	other, ok := judged.(*Pictures)
	if !ok {
		return nil
	}
	return &Pictures{t.side, t.patch, t.classFolder.withTest(other.classFolder, number)}
}

// withTest returns t with all sounds of judged as test set; nil: they are no sounds.
func (t *Sounds) withTest(judged Source, number func(class int32) int32) Source {
	other, ok := judged.(*Sounds)
	if !ok {
		return nil
	}
	return &Sounds{t.length, t.classFolder.withTest(other.classFolder, number)}
}

// withTest returns c with all files of judged as test set.
func (c *classFolder) withTest(judged *classFolder, number func(class int32) int32) *classFolder {
	w := *c
	w.files[Test] = renumber(judged.files, func(f *classFile) { f.class = number(f.class) })
	return &w
}

// Spec returns the specification of the samples, with the classes of the model.
func (t *learnedSource) Spec() Spec { return t.spec }

// ClassNames returns the names of the model's classes.
func (t *learnedSource) ClassNames() []string { return slices.Clone(t.names) }

// Baselines returns the baselines of the source in the scales of the model. If there are no
// training samples, they are the commonest class or label, or the mean, of the judged split; if all
// targets are equal, there are none. Baselines returns an error if a sample cannot be read.
func (t *learnedSource) Baselines(n int) ([]Baseline, error) {
	if t.spec.Count[Train] == 0 {
		return scoreInHindsight(t, "")
	}
	all, err := Baselines(t.Source, n)
	all = unlessCertain(all)
	switch {
	case err != nil || t.own == nil:
	case len(t.own.Mean) > 1: // a mean over scales has no scale
		return nil, nil
	default:
		for i := range all {
			r := t.own.Deviation[0] / t.scales.Deviation[0]
			all[i].Score *= r * r
			all[i].Error *= r * r
		}
	}
	return all, err
}

// Sample overwrites s with a sample in the classes and scales of the model. It returns an error if
// the split has no sample i, and the errors of the source.
func (t *learnedSource) Sample(s *Sample, split Split, i int) error {
	if err := t.spec.CheckIndex(split, i); err != nil {
		return err
	}
	if t.hasAll {
		count := t.Source.Spec().Count
		for split = Train; i >= count[split]; split++ {
			i -= count[split]
		}
	}
	if err := t.Source.Sample(s, split, i); err != nil {
		return err
	}
	switch {
	case t.numbers != nil && t.spec.Kind == Class:
		s.Class = t.numbers[s.Class]
	case t.numbers != nil:
		for i, y := range s.Labels {
			if y >= 0 {
				s.Labels[i] = t.numbers[y]
			}
		}
	}
	if t.own != nil {
		for i, x := range s.Targets {
			j := i % len(t.own.Mean)
			s.Targets[i] = float32((float64(x)*t.own.Deviation[j] + t.own.Mean[j] - t.scales.Mean[j]) / t.scales.Deviation[j])
		}
	}
	return nil
}
