package mechanism

// Values are the settings that Options choose for a row of another catalogue,
// which computes something else than a function of q, k and v.
type Values struct{ r reader }

// Values refuses what the row does not have.
func (r *Row) Values(o *Options) (*Values, error) {
	v := &Values{reader{row: r, o: o}}
	return v, v.r.check()
}

// Whole returns an integer between lo and hi.
func (v *Values) Whole(name string, lo, hi int) (int, error) { return v.r.whole(name, lo, hi) }

// Positive returns a finite number above 0.
func (v *Values) Positive(name string) (float64, error) { return v.r.positive(name, "") }

// Choice returns the text of a setting, which is one of names.
func (v *Values) Choice(name string, names ...string) (string, error) {
	return v.r.choice(name, names...)
}
