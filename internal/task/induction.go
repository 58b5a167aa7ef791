package task

// Induction recalls the token that followed a special token, which appears a second time at
// the end (Olsson et al. 2022; with these sizes Fu et al. 2023, and Gu and Dao 2023 with
// length 256 and 16 symbols).
type Induction struct {
	Symbols int // tokens 0 ≤ t < Symbols; the special token is Symbols
	Length  int
	Seed    uint64
}

var inductionSettings = []Setting{
	{"symbols", "20", "symbols besides the special one"},
	{"length", "30", "tokens of a sequence"},
}

func openInduction(o *settingsReader) (Source, error) {
	return NewInduction(Induction{Symbols: o.int("symbols"), Length: o.int("length"), Seed: o.Seed})
}

// NewInduction returns a generator of the samples of task t. It returns an error if a field is out of
// range.
func NewInduction(t Induction) (*Induction, error) {
	if err := checkRange("symbols", t.Symbols, 1, 1<<20); err != nil {
		return nil, err
	}
	if err := checkRange("length", t.Length, 3, 1<<24); err != nil {
		return nil, err
	}
	return &t, nil
}

// Spec returns the specification of the samples.
func (t *Induction) Spec() Spec {
	return Spec{Name: "induction", Kind: Next, Metric: Accuracy, Vocab: t.Symbols + 1, Length: t.Length, Parts: 1,
		Classes: t.Symbols + 1, Count: [3]int{Endless, Endless, Endless}}
}

// Sample overwrites s with a sequence that ends in the special token. Only the last position
// has a label. It returns an error if the split has no sample i.
func (t *Induction) Sample(s *Sample, split Split, i int) error {
	spec := t.Spec()
	if err := spec.CheckIndex(split, i); err != nil {
		return err
	}
	resetSample(s)
	d := newDraws(t.Seed, split, i)
	for range t.Length {
		s.Tokens = append(s.Tokens, int32(d.intn(t.Symbols)))
		s.Labels = append(s.Labels, -1)
	}
	at := d.intn(t.Length - 2)
	s.Tokens[at] = int32(t.Symbols)
	s.Tokens[t.Length-1] = int32(t.Symbols)
	s.Labels[t.Length-1] = s.Tokens[at+1]
	return nil
}

// Baselines scores the commonest symbol. It returns the errors of Sample.
func (t *Induction) Baselines(n int) ([]Baseline, error) {
	return runBaselines(func() (Baseline, error) { return scoreMajorityLabel(t, n) })
}
