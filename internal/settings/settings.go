// Package settings reads the settings of a row of a catalogue. A setting has a name, a text as its
// value, and a default. Errors name the owner of the settings, the setting, its value and the
// allowed values.
package settings

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/farfield-ml/farfield/internal/infile"
)

// Setting is a key with its default value and its documentation.
type Setting struct{ Name, Default, Doc string }

// Reader reads values of settings.
type Reader struct {
	owner    string
	settings []Setting
	values   map[string]string
}

// NewReader returns a reader of values, whose keys are names of settings. Errors begin
// with owner.
func NewReader[S ~struct{ Name, Default, Doc string }](owner string, settings []S, values map[string]string) *Reader {
	r := &Reader{owner: owner, values: values}
	for _, s := range settings {
		r.settings = append(r.settings, Setting(s))
	}
	return r
}

// Names returns the names of all settings.
func (r *Reader) Names() []string {
	var names []string
	for _, s := range r.settings {
		names = append(names, s.Name)
	}
	return names
}

// FindUnknown returns the first key of the values, in alphabetical order, that is no
// setting.
func (r *Reader) FindUnknown() (name string, found bool) {
	names := r.Names()
	for _, key := range slices.Sorted(maps.Keys(r.values)) {
		if !slices.Contains(names, key) {
			return key, true
		}
	}
	return "", false
}

// Text returns the value of a setting, or its default. It panics if the setting does not
// exist.
func (r *Reader) Text(name string) string {
	if v, given := r.values[name]; given {
		return v
	}
	for _, s := range r.settings {
		if s.Name == name {
			return s.Default
		}
	}
	panic("settings: a setting that its row does not list")
}

// Refuse returns an error that says the value of a setting is not allowed.
func (r *Reader) Refuse(name, allowed string) error {
	return fmt.Errorf("%s: setting %s=%s: needs %s", r.owner, name, infile.Shorten(r.Text(name)), allowed)
}

// orDefault returns ", or W" for a setting whose default W is a word, such as none: its row reads W
// before it asks for a number.
func (r *Reader) orDefault(name string) string {
	for _, s := range r.settings {
		if _, err := strconv.ParseFloat(s.Default, 64); s.Name == name && err != nil && s.Default != "" {
			return ", or " + s.Default
		}
	}
	return ""
}

// Positive returns the value of a setting as a number from 1e-30 to 1e30, whose inverse is finite
// in float32. It returns 0 if the value is the text word, unless word is "". It returns an error
// for any other value.
func (r *Reader) Positive(name, word string) (float64, error) {
	text, allowed := r.Text(name), "a number from 1e-30 to 1e30"
	if word != "" {
		if text == word {
			return 0, nil
		}
		allowed += ", or " + word
	}
	if or := r.orDefault(name); or != ", or "+word {
		allowed += or
	}
	x, err := strconv.ParseFloat(text, 64)
	if err == nil && x >= 1e-30 && x <= 1e30 {
		return x, nil
	}
	return 0, r.Refuse(name, allowed)
}

// Integer returns the value of a setting as an integer. It returns an error if it is not from lo to
// hi.
func (r *Reader) Integer(name string, lo, hi int) (int, error) {
	n, err := strconv.Atoi(r.Text(name))
	if err != nil || n < lo || n > hi {
		return 0, r.Refuse(name, fmt.Sprintf("a whole number from %d to %d", lo, hi)+r.orDefault(name))
	}
	return n, nil
}

// Integers returns the value of a setting as integers separated by commas. It returns an error if
// one of them is not from lo to hi.
func (r *Reader) Integers(name string, lo, hi int) ([]int, error) {
	var list []int
	for _, text := range strings.Split(r.Text(name), ",") {
		n, err := strconv.Atoi(strings.TrimSpace(text))
		if err != nil || n < lo || n > hi {
			return nil, r.Refuse(name, fmt.Sprintf("whole numbers from %d to %d with commas between them", lo, hi))
		}
		list = append(list, n)
	}
	return list, nil
}

// Choice returns the text of a setting. It returns an error if the text is not in names.
func (r *Reader) Choice(name string, names ...string) (string, error) {
	if text := r.Text(name); slices.Contains(names, text) {
		return text, nil
	}
	return "", r.Refuse(name, "one of "+strings.Join(names, ", "))
}

// Bool returns a boolean. It returns an error if the value is neither true nor false.
func (r *Reader) Bool(name string) (bool, error) {
	switch r.Text(name) {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return false, r.Refuse(name, "true or false")
}
