package mechanism

// Values reads the settings of a row that belongs to another catalogue, whose rows are
// no functions of q, k and v.
type Values struct{ r reader }

// Values returns a reader of the settings in o. It returns an error if the order, a
// size or the name of a setting does not suit the row.
func (r *Row) Values(o *Options) (*Values, error) {
	v := &Values{reader{row: r, o: o}}
	return v, v.r.check()
}

// Whole returns an integer setting. It returns an error if the value is not from lo to
// hi.
func (v *Values) Whole(name string, lo, hi int) (int, error) { return v.r.whole(name, lo, hi) }

// Positive returns a number above 0. It returns an error for any other value, and for a
// value above 1e30.
func (v *Values) Positive(name string) (float64, error) { return v.r.positive(name, "") }

// Choice returns the text of a setting. It returns an error if the text is not in
// names.
func (v *Values) Choice(name string, names ...string) (string, error) {
	return v.r.choice(name, names...)
}
