package task

// Copy repeats a sequence after a separator (Katharopoulos et al. 2020, section 4.1). A sample
// is w, separator, w, predicted token by token; only the second w has labels. Every w has the
// same length.
type Copy struct {
	Symbols int // tokens 1 ≤ t ≤ Symbols; 0 is the separator
	Length  int // tokens of w
	Seed    uint64
}

var copySettings = []Setting{
	{"symbols", "10", "symbols besides the separator"},
	{"length", "63", "tokens of the sequence that is repeated"},
}

func openCopy(o *settingsReader) (Source, error) {
	return NewCopy(Copy{Symbols: o.int("symbols"), Length: o.int("length"), Seed: o.Seed})
}

// NewCopy returns a generator of the samples of task t. It returns an error if a field is out of range.
func NewCopy(t Copy) (*Copy, error) {
	if err := checkRange("symbols", t.Symbols, 1, 1<<20); err != nil {
		return nil, err
	}
	if err := checkRange("length", t.Length, 1, 1<<24); err != nil {
		return nil, err
	}
	return &t, nil
}

// Spec returns the specification of the samples. The last token has no successor and is
// omitted.
func (t *Copy) Spec() Spec {
	return Spec{Name: "copy", Kind: Next, Metric: Accuracy, Vocab: t.Symbols + 1, Length: 2 * t.Length, Parts: 1,
		Classes: t.Symbols + 1, Count: [3]int{Endless, Endless, Endless}}
}

// Sample overwrites s with a sequence and its next tokens. It returns an error if the split
// has no sample i.
func (t *Copy) Sample(s *Sample, split Split, i int) error {
	spec := t.Spec()
	if err := spec.CheckIndex(split, i); err != nil {
		return err
	}
	resetSample(s)
	d := newDraws(t.Seed, split, i)
	for range t.Length {
		s.Tokens = append(s.Tokens, 1+int32(d.intn(t.Symbols)))
		s.Labels = append(s.Labels, -1)
	}
	s.Labels = append(s.Labels, s.Tokens...)
	s.Tokens = append(s.Tokens, 0)
	s.Tokens = append(s.Tokens, s.Tokens[:t.Length-1]...)
	return nil
}

// Baselines scores the commonest symbol. It returns the errors of Sample.
func (t *Copy) Baselines(n int) ([]Baseline, error) {
	return runBaselines(func() (Baseline, error) { return scoreMajorityLabel(t, n) })
}
