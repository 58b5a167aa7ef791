package task

// Copy is the task of repeating a sequence behind a separator (Katharopoulos et
// al. 2020, section 4.1): w, separator, w, predicted token by token; the second w
// is judged. All w of a task have one length.
type Copy struct {
	Symbols int // tokens 1 ≤ t ≤ Symbols; 0 is the separator
	Length  int // of w
	Seed    uint64
}

var copySettings = []Setting{
	{"symbols", "10", "symbols besides the separator"},
	{"length", "63", "tokens of the sequence that is repeated"},
}

func openCopy(o *settingsReader) (Source, error) {
	return NewCopy(Copy{Symbols: o.int("symbols"), Length: o.int("length"), Seed: o.Seed})
}

// NewCopy returns the generator.
func NewCopy(t Copy) (*Copy, error) {
	if err := checkRange("symbols", t.Symbols, 1, 1<<20); err != nil {
		return nil, err
	}
	if err := checkRange("length", t.Length, 1, 1<<24); err != nil {
		return nil, err
	}
	return &t, nil
}

// Spec returns what the samples are: the last token has no successor and is left
// out.
func (t *Copy) Spec() Spec {
	return Spec{Name: "copy", Kind: Next, Metric: Accuracy, Vocab: t.Symbols + 1, Length: 2 * t.Length, Parts: 1,
		Classes: t.Symbols + 1, Count: [3]int{Endless, Endless, Endless}}
}

// Sample sets s to a sequence and the tokens that come next.
func (t *Copy) Sample(s *Sample, split Split, i int) error {
	spec := t.Spec()
	if err := spec.checkIndex(split, i); err != nil {
		return err
	}
	s.reset()
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

// Baselines are the commonest symbol.
func (t *Copy) Baselines(n int) ([]Baseline, error) {
	return runBaselines(func() (Baseline, error) { return scoreMajorityLabel(t, n) })
}
