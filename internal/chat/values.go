package chat

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// A value is nil, undefined, a bool, an int64, a float64, a string, a []any, a *generator, a
// *dict, a *namespace, a *loop, a function or a *macro.

// undefined is the value of a name that is not set.
type undefined struct{}

// generator holds the elements of a filter's result until they are read once. It is true, also
// without elements.
type generator struct{ list []any }

// dict is a mapping from strings in the order of insertion.
type dict struct {
	keys   []string
	values map[string]any
}

func newDict() *dict { return &dict{values: map[string]any{}} }

// set sets the value of a key.
func (d *dict) set(key string, value any) {
	if _, ok := d.values[key]; !ok {
		d.keys = append(d.keys, key)
	}
	d.values[key] = value
}

// namespace holds values that statements within loops can set.
type namespace struct{ values map[string]any }

// loop is the variable loop at an element of a list.
type loop struct {
	list []any
	at   int
	last *any // of changed; nil: it was not asked
}

// apply returns the result of a method of the loop.
func (l *loop) apply(r *renderer, name string, args []any) (any, error) {
	switch {
	case name == "cycle" && len(args) > 0:
		return args[l.at%len(args)], nil
	case name == "changed":
		now := any(append([]any{}, args...))
		before := *l.last
		*l.last = now
		equal, err := r.isEqual(now, before)
		return !equal, err
	}
	return nil, errors.New("is no method of loop, or has no arguments")
}

// lookup returns an attribute of the loop.
func (l *loop) lookup(name string) any {
	n := len(l.list)
	switch name {
	case "index":
		return int64(l.at + 1)
	case "index0":
		return int64(l.at)
	case "revindex":
		return int64(n - l.at)
	case "revindex0":
		return int64(n - l.at - 1)
	case "first":
		return l.at == 0
	case "last":
		return l.at == n-1
	case "length":
		return int64(n)
	case "depth":
		return int64(1)
	case "depth0":
		return int64(0)
	case "previtem":
		if l.at > 0 {
			return l.list[l.at-1]
		}
	case "nextitem":
		if l.at+1 < n {
			return l.list[l.at+1]
		}
	}
	return undefined{}
}

// function is a function by its name.
type function string

// isTrue reports the truth of a value, as Python has it.
func isTrue(v any) bool {
	switch v := v.(type) {
	case nil, undefined:
		return false
	case bool:
		return v
	case int64:
		return v != 0
	case float64:
		return v != 0
	case string:
		return v != ""
	case []any:
		return len(v) > 0
	case *dict:
		return len(v.keys) > 0
	}
	return true
}

// typeName returns the name of a value's type, for messages.
func typeName(v any) string {
	switch v.(type) {
	case nil:
		return "none"
	case undefined:
		return "an undefined value"
	case bool:
		return "a boolean"
	case int64, float64:
		return "a number"
	case string:
		return "a string"
	case []any:
		return "a list"
	case *generator:
		return "a generator"
	case *dict:
		return "a mapping"
	case function, *macro:
		return "a function"
	case *loop:
		return "a loop"
	}
	return "a namespace"
}

// format returns a value as text. It returns an error for lists and mappings.
func format(v any) (string, error) {
	switch v := v.(type) {
	case nil:
		return "None", nil
	case undefined:
		return "", nil
	case bool:
		if v {
			return "True", nil
		}
		return "False", nil
	case int64:
		return strconv.FormatInt(v, 10), nil
	case float64:
		return formatFloat(v), nil
	case string:
		return v, nil
	}
	return "", fmt.Errorf("%s as text is not supported without tojson", typeName(v))
}

// formatFloat returns a number as Python's repr does.
func formatFloat(x float64) string {
	size := math.Abs(x)
	switch {
	case x-x != 0:
		return strings.ToLower(strings.TrimPrefix(strconv.FormatFloat(x, 'g', -1, 64), "+"))
	case size >= 1e16 || size > 0 && size < 1e-4:
		return strconv.FormatFloat(x, 'e', -1, 64)
	}
	text := strconv.FormatFloat(x, 'f', -1, 64)
	if !strings.Contains(text, ".") {
		text += ".0"
	}
	return text
}

// nestWork is the work of a nested value, which bounds the depth of nested calls.
const nestWork = 1 << 12

// isEqual reports whether two values are equal, as Python has it.
func (r *renderer) isEqual(a, b any) (bool, error) {
	switch a := a.(type) {
	case string:
		b, ok := b.(string)
		return ok && a == b, r.spend(len(a))
	case []any:
		b, ok := b.([]any)
		if !ok || len(a) != len(b) {
			return false, nil
		}
		if err := r.spend(nestWork); err != nil {
			return false, err
		}
		for i := range a {
			if equal, err := r.isEqual(a[i], b[i]); err != nil || !equal {
				return false, err
			}
		}
		return true, r.spend(len(a))
	case *dict:
		b, ok := b.(*dict)
		if !ok || len(a.keys) != len(b.keys) {
			return false, nil
		}
		if err := r.spend(nestWork); err != nil {
			return false, err
		}
		for _, key := range a.keys {
			if err := r.spend(len(key)); err != nil {
				return false, err
			}
			other, ok := b.values[key]
			if equal, err := r.isEqual(a.values[key], other); err != nil || !equal || !ok {
				return false, err
			}
		}
		return true, r.spend(len(a.keys))
	case *namespace:
		b, ok := b.(*namespace)
		return ok && a == b, nil
	case *loop:
		b, ok := b.(*loop)
		return ok && a == b, nil
	}
	if order, isOrdered, isNumber := compareNumbers(a, b); isNumber {
		return isOrdered && order == 0, nil
	}
	return a == nil && b == nil || a == any(undefined{}) && b == any(undefined{}), nil
}

// number returns a value as a number, and whether it is one. true is 1.
func number(v any) (float64, bool) {
	if n, ok := integer(v); ok {
		return float64(n), true
	}
	x, ok := v.(float64)
	return x, ok
}

// compareNumbers returns the exact order of two numbers, whether they have one, and whether both are numbers.
func compareNumbers(a, b any) (order int, isOrdered, isNumber bool) {
	x, isX := integer(a)
	y, isY := integer(b)
	if isX && isY {
		return cmp.Compare(x, y), true, true
	}
	f, isF := number(a)
	g, isG := number(b)
	switch {
	case !isF || !isG:
		return 0, false, false
	case f != f || g != g:
		return 0, false, true
	case isX: // of 64 bits, which a float64 need not have
		return new(big.Float).SetInt64(x).Cmp(big.NewFloat(g)), true, true
	case isY:
		return big.NewFloat(f).Cmp(new(big.Float).SetInt64(y)), true, true
	}
	return cmp.Compare(f, g), true, true
}

// integer returns a value as an integer, and whether it is one.
func integer(v any) (int64, bool) {
	switch v := v.(type) {
	case int64:
		return v, true
	case bool:
		if v {
			return 1, true
		}
		return 0, true
	}
	return 0, false
}

// list returns the elements of a value. It returns an error if it has none.
func (r *renderer) list(v any) ([]any, error) {
	switch v := v.(type) {
	case undefined:
		return nil, nil
	case []any:
		return v, r.spend(len(v))
	case *generator:
		list := v.list
		v.list = nil
		return list, r.spend(len(list))
	case *dict:
		if err := r.take(elementBytes * (1 + len(v.keys))); err != nil {
			return nil, err
		}
		keys := make([]any, len(v.keys))
		for i, key := range v.keys {
			keys[i] = key
		}
		return keys, nil
	case string:
		if err := r.take(elementBytes * (1 + utf8.RuneCountInString(v))); err != nil {
			return nil, err
		}
		chars := make([]any, 0, utf8.RuneCountInString(v))
		for _, c := range v {
			chars = append(chars, string(c))
		}
		return chars, nil
	}
	return nil, fmt.Errorf("%s has no elements", typeName(v))
}

// lookup returns an attribute or element of a value.
func (r *renderer) lookup(v, key any) (any, error) {
	if name, ok := key.(string); ok {
		if err := r.spend(len(name)); err != nil {
			return nil, err
		}
	}
	switch v := v.(type) {
	case undefined:
		name, err := format(key)
		if err != nil {
			name = typeName(key)
		}
		return nil, fmt.Errorf("%.80s of an undefined value", name)
	case *dict:
		if name, ok := key.(string); ok {
			if value, ok := v.values[name]; ok {
				return value, nil
			}
		}
		return undefined{}, nil
	case *namespace:
		if name, ok := key.(string); ok {
			if value, ok := v.values[name]; ok {
				return value, nil
			}
		}
		return undefined{}, nil
	case *loop:
		if name, ok := key.(string); ok {
			return v.lookup(name), nil
		}
		return undefined{}, nil
	case []any:
		if i, ok := integer(key); ok {
			if i < 0 {
				i += int64(len(v))
			}
			if i >= 0 && i < int64(len(v)) {
				return v[i], nil
			}
		}
		return undefined{}, nil
	case string:
		i, ok := integer(key)
		if !ok {
			return undefined{}, nil
		}
		if err := r.take(4 * len(v)); err != nil {
			return nil, err
		}
		chars := []rune(v)
		if i < 0 {
			i += int64(len(chars))
		}
		if i >= 0 && i < int64(len(chars)) {
			return string(chars[i]), nil
		}
		return undefined{}, nil
	}
	return undefined{}, nil
}

// toJSON appends a value at a depth as Python's json.dumps writes it.
func (r *renderer) toJSON(b *strings.Builder, v any, s *jsonStyle, depth int) error {
	if err := r.take(stepWork); err != nil { // also of a number, and of what stands between values
		return err
	}
	switch v := v.(type) {
	case nil:
		b.WriteString("null")
	case bool:
		b.WriteString(strconv.FormatBool(v))
	case int64:
		b.WriteString(strconv.FormatInt(v, 10))
	case float64:
		if v-v != 0 {
			return fmt.Errorf("tojson: %s is no JSON", formatFloat(v))
		}
		b.WriteString(formatFloat(v))
	case string:
		return r.writeJSONString(b, v, s.isASCII)
	case []any:
		if err := r.spend(nestWork); err != nil {
			return err
		}
		b.WriteByte('[')
		for i, x := range v {
			if i > 0 {
				b.WriteString(s.item)
			}
			if err := r.breakJSON(b, s, depth+1); err != nil {
				return err
			}
			if err := r.toJSON(b, x, s, depth+1); err != nil {
				return err
			}
		}
		if len(v) > 0 {
			if err := r.breakJSON(b, s, depth); err != nil {
				return err
			}
		}
		b.WriteByte(']')
	case *dict:
		if err := r.spend(nestWork); err != nil {
			return err
		}
		b.WriteByte('{')
		keys := v.keys
		if s.isSorted {
			if err := r.take(product(stepWork, 1+len(keys))); err != nil {
				return err
			}
			keys = slices.Sorted(slices.Values(keys))
		}
		for i, key := range keys {
			if i > 0 {
				b.WriteString(s.item)
			}
			if err := r.breakJSON(b, s, depth+1); err != nil {
				return err
			}
			if err := r.writeJSONString(b, key, s.isASCII); err != nil {
				return err
			}
			b.WriteString(s.key)
			if err := r.toJSON(b, v.values[key], s, depth+1); err != nil {
				return err
			}
		}
		if len(keys) > 0 {
			if err := r.breakJSON(b, s, depth); err != nil {
				return err
			}
		}
		b.WriteByte('}')
	default:
		return fmt.Errorf("tojson: %s is no JSON", typeName(v))
	}
	return nil
}

// breakJSON begins a line at a depth where the style has lines.
func (r *renderer) breakJSON(b *strings.Builder, s *jsonStyle, depth int) error {
	if !s.isIndented {
		return r.take(growth * (len(s.item) + len(s.key)))
	}
	if err := r.take(growth * (1 + product(depth, len(s.indent)) + len(s.item) + len(s.key))); err != nil {
		return err
	}
	b.WriteByte('\n')
	for range depth {
		b.WriteString(s.indent)
	}
	return nil
}

// writeJSONString writes a string with the escapes that JSON needs, with isASCII also of all
// characters beyond ASCII.
func (r *renderer) writeJSONString(b *strings.Builder, s string, isASCII bool) error {
	if err := r.spend(len(s)); err != nil {
		return err
	}
	size := 2
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\' || c == '\n' || c == '\t' || c == '\r' || c == '\b' || c == '\f':
			size += 2
		case c < ' ' || isASCII && c > '~':
			size += 6
		default:
			size++
		}
	}
	if err := r.take(growth * size); err != nil {
		return err
	}
	b.WriteByte('"')
	for _, c := range s {
		switch {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteRune(c)
		case c == '\n':
			b.WriteString(`\n`)
		case c == '\t':
			b.WriteString(`\t`)
		case c == '\r':
			b.WriteString(`\r`)
		case c == '\b':
			b.WriteString(`\b`)
		case c == '\f':
			b.WriteString(`\f`)
		case c < ' ':
			fmt.Fprintf(b, `\u%04x`, c)
		case isASCII && c > 0xffff:
			high, low := utf16.EncodeRune(c)
			fmt.Fprintf(b, `\u%04x\u%04x`, high, low)
		case isASCII && c > '~':
			fmt.Fprintf(b, `\u%04x`, c)
		default:
			b.WriteRune(c)
		}
	}
	b.WriteByte('"')
	return nil
}
