package published

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/farfield-ml/farfield/internal/fault"
	"github.com/farfield-ml/farfield/internal/infile"
	"github.com/farfield-ml/farfield/internal/strict"
)

// The limits of config.json. Files of published models are far below them.
const (
	maxConfig = 4 << 20
	maxDepth  = 32
	maxCount  = 1 << 24 // of every size
)

// fields reads the members of a JSON object and remembers which were read. Its first
// error stays.
type fields struct {
	prefix string // of names in errors
	hint   string // what can be done about an unknown member
	values map[string]json.RawMessage
	read   map[string]bool
	err    error

	ropeNames map[string]string // older names of kinds of rotations
}

// parseFields returns the members of a JSON object. It returns an error if text is no
// object, nests too deeply or has a key twice.
func parseFields(text []byte) (*fields, error) {
	if err := strict.Check(text, maxDepth); err != nil {
		return nil, err
	}
	f := &fields{read: map[string]bool{}}
	if err := json.Unmarshal(text, &f.values); err != nil {
		return nil, errors.New("a JSON object is needed")
	}
	if f.values == nil {
		return nil, errors.New("a JSON object is needed, it is null")
	}
	return f, nil
}

// fail keeps the first error.
func (f *fields) fail(name, format string, args ...any) {
	if f.err == nil {
		f.err = fmt.Errorf("%s%s: %s", f.prefix, name, fmt.Sprintf(format, args...))
	}
}

// setDefaults sets members that are missing, which is not the same as null.
func (f *fields) setDefaults(values map[string]string) {
	for name, value := range values {
		if _, given := f.values[name]; !given {
			f.values[name] = []byte(value)
		}
	}
}

// has reports whether a member exists and is not null. It counts as read.
func (f *fields) has(name string) bool {
	f.read[name] = true
	v, ok := f.values[name]
	return ok && string(v) != "null"
}

// decode sets to from a member and reports whether there is one.
func (f *fields) decode(name, kind string, to any) bool {
	if !f.has(name) {
		return false
	}
	if err := json.Unmarshal(f.values[name], to); err != nil {
		f.fail(name, "is %s, %s is needed", shorten(f.values[name]), kind)
		return false
	}
	return true
}

// shorten returns the beginning of a JSON value.
func shorten(v json.RawMessage) string { return infile.Shorten(string(v)) }

// count returns a size from 1 to maxCount; without the member byDefault, or an error if
// that is 0.
func (f *fields) count(name string, byDefault int) int {
	n := byDefault
	if !f.decode(name, "an integer", &n) && n == 0 {
		f.fail(name, "is missing")
	}
	if n < 1 || n > maxCount {
		f.fail(name, "is %d, needs to be from 1 to %d", n, maxCount)
		return 1
	}
	return n
}

// id returns a token id, or -1 without the member.
func (f *fields) id(name string) int {
	n := -1
	if f.decode(name, "an integer", &n) && (n < 0 || n > maxCount) {
		f.fail(name, "is %d, needs to be from 0 to %d", n, maxCount)
	}
	return n
}

// number returns a finite number.
func (f *fields) number(name string, byDefault float64) float64 {
	x := byDefault
	f.decode(name, "a number", &x)
	if math.IsNaN(x) || math.IsInf(x, 0) {
		f.fail(name, "is %g, a finite number is needed", x)
	}
	return x
}

// numbers returns a list of numbers, or an error without the member.
func (f *fields) numbers(name string) (x []float64) {
	if !f.decode(name, "a list of numbers", &x) {
		f.fail(name, "is missing")
	}
	return x
}

func (f *fields) flag(name string, byDefault bool) bool {
	x := byDefault
	f.decode(name, "true or false", &x)
	return x
}

func (f *fields) text(name, byDefault string) string {
	x := byDefault
	f.decode(name, "a string", &x)
	return x
}

// object returns a nested object; nil without the member.
func (f *fields) object(name string) *fields {
	if !f.has(name) {
		return nil
	}
	o, err := parseFields(f.values[name])
	if err != nil {
		f.fail(name, "%v", err)
		return nil
	}
	o.prefix = f.prefix + name + "."
	return o
}

// needs records an error unless a member has one of the values, or is missing.
func (f *fields) needs(name string, values ...string) {
	if !f.has(name) {
		return
	}
	if v := string(f.values[name]); !slices.Contains(values, v) {
		if len(values) == 0 {
			f.fail(name, "is %s, which is not supported", shorten(f.values[name]))
			return
		}
		f.fail(name, "is %s, %s is supported", shorten(f.values[name]), strings.Join(values, " or "))
	}
}

// finish returns the first error, or an error for the first member that was not read and
// is not inert in config.json.
func (f *fields) finish() error {
	if f.prefix == "" {
		return f.finishFile(configFile)
	}
	return f.finishAll()
}

// finishFile is finish of a file in inertFields.
func (f *fields) finishFile(name string) error {
	if f.err != nil {
		return f.err
	}
	inert := inertFields[name]
	return f.findUnknown(func(name string) bool { return slices.Contains(inert, name) })
}

// finishAll is finish without inert members.
func (f *fields) finishAll() error { return f.finishFile("") }

// findUnknown returns an error for the first member that was not read, is not inert and is
// not null.
func (f *fields) findUnknown(isInert func(name string) bool) error {
	var unknown []string
	for name := range f.values {
		if !f.read[name] && !isInert(name) && string(f.values[name]) != "null" {
			unknown = append(unknown, name)
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	slices.Sort(unknown)
	return fault.Mark(fault.ErrUnknownField, fmt.Errorf("%s%s: is %s, but the field is unknown here and may change the function%s", f.prefix, infile.Shorten(unknown[0]), shorten(f.values[unknown[0]]), f.hint))
}

// ignoreHint says how a folder is opened whose config.json has a field that is unknown here.
const ignoreHint = "; if it does not, --ignore-field passes over it, and export --ignore-field writes a folder without it"

// findCode returns what auto_map of config.json names as the code of a model; "": nothing.
func findCode(text []byte) string {
	var c struct {
		Map map[string]json.RawMessage `json:"auto_map"`
	}
	if json.Unmarshal(text, &c) != nil {
		return ""
	}
	for _, name := range slices.Sorted(maps.Keys(c.Map)) {
		if name != "AutoConfig" && name != "AutoTokenizer" {
			return string(c.Map[name])
		}
	}
	return ""
}

// dropFields returns config.json without members, and a note for each that it had. It returns an
// error for a member that decides what the folder is.
func dropFields(text []byte, names []string) ([]byte, []string, error) {
	if len(names) == 0 {
		return text, nil, nil
	}
	f, err := parseFields(text)
	if err != nil {
		return nil, nil, err
	}
	var notes []string
	for _, name := range names {
		value, has := f.values[name]
		switch {
		case name == "model_type" || name == "architectures":
			return nil, nil, fault.Mark(fault.ErrInput, fmt.Errorf("%s: cannot be ignored", name))
		case !has:
			return nil, nil, fault.Mark(fault.ErrInput, fmt.Errorf("%s: cannot be ignored, there is no such field", infile.Shorten(name)))
		}
		notes = append(notes, fmt.Sprintf("%s: %s is ignored, it is %s", configFile, infile.Shorten(name), shorten(value)))
		delete(f.values, name)
	}
	text, err = json.MarshalIndent(f.values, "", "  ")
	return text, notes, err
}
