package chat

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// The names that templates may use.
var (
	functions = []string{"raise_exception", "strftime_now", "namespace", "range"}
	filters   = []string{"trim", "upper", "lower", "capitalize", "length", "count", "tojson", "default", "d", "join", "first", "last", "replace", "string", "list", "int", "items", "reverse", "select", "reject", "selectattr", "rejectattr", "map"}
	tests     = []string{"defined", "undefined", "none", "string", "mapping", "iterable", "sequence", "number", "integer", "boolean", "true", "false", "odd", "even", "callable", "equalto", "eq", "ne", "in"}
	methods   = []string{"strip", "lstrip", "rstrip", "split", "startswith", "endswith", "upper", "lower", "capitalize", "replace", "join", "get", "items", "keys", "values"}
)

// call is a function, a method, a filter or a test of a value.
type call struct {
	kind  byte // 'f', 'm', '|' or '?'
	name  string
	owner expression // nil: a function
	args  []expression
	names []string // of args; "": none
}

func (c *call) value(r *renderer) (any, error) {
	var m *macro
	if c.kind == 'f' {
		m, _ = r.find(c.name).(*macro)
	}
	if err := c.check(); err != nil && m == nil {
		return nil, err
	}
	var of any
	if c.owner != nil {
		var err error
		if of, err = r.value(c.owner); err != nil {
			return nil, err
		}
	}
	if err := r.spend(16 * len(c.args)); err != nil {
		return nil, err
	}
	args := make([]any, len(c.args))
	for i, e := range c.args {
		var err error
		if args[i], err = r.value(e); err != nil {
			return nil, err
		}
		if c.names[i] != "" && m == nil && c.name != "namespace" && (c.kind != '|' || c.name != "tojson" && c.name != "map") {
			return nil, fmt.Errorf("%s: argument %s by its name is not supported", c.name, c.names[i])
		}
	}
	var v any
	var err error
	if m != nil {
		v, err = m.apply(r, args, c.names)
	} else {
		v, err = c.apply(r, of, args)
	}
	var inner *lineError // of a macro
	if err != nil && !isFinal(err) && !errors.As(err, &inner) {
		return nil, fmt.Errorf("%s: %w", c.name, err)
	}
	return v, err
}

// check returns an error if c is none of the names that templates may use.
func (c *call) check() error {
	known, kind := functions, "function"
	switch c.kind {
	case 'm':
		known, kind = methods, "method"
	case '|':
		known, kind = filters, "filter"
	case '?':
		known, kind = tests, "test"
	}
	if !slices.Contains(known, c.name) {
		return fmt.Errorf("%s %.80s is not supported", kind, c.name)
	}
	return nil
}

// apply returns the result for values.
func (c *call) apply(r *renderer, of any, args []any) (any, error) {
	switch c.kind {
	case 'f':
		return c.applyFunction(r, args)
	case '?':
		return r.test(c.name, of, args)
	}
	if c.kind == 'm' {
		if _, ok := of.(undefined); ok {
			return nil, errors.New("the value is undefined")
		}
	}
	if text, ok := of.(string); ok {
		if err := r.spend(4 * len(text)); err != nil {
			return nil, err
		}
		if v, known, err := c.applyString(r, text, args); known || err != nil {
			return v, err
		}
	}
	if d, ok := of.(*dict); ok {
		if v, known, err := c.applyDict(r, d, args); known || err != nil {
			return v, err
		}
	}
	if c.kind == 'm' {
		return nil, fmt.Errorf("%s has no such method", typeName(of))
	}
	return c.applyFilter(r, of, args)
}

// applyFunction returns the result of a function.
func (c *call) applyFunction(r *renderer, args []any) (any, error) {
	switch c.name {
	case "raise_exception":
		if len(args) == 1 {
			if text, ok := args[0].(string); ok {
				return nil, &RefusedError{text}
			}
		}
		return nil, errors.New("needs a text")
	case "strftime_now":
		if len(args) == 1 {
			if text, ok := args[0].(string); ok {
				if err := r.take(product(stepWork, len(text))); err != nil {
					return nil, err
				}
				return formatDate(r.date, text)
			}
		}
		return nil, errors.New("needs a text")
	case "namespace":
		if err := r.take(objectBytes + entryBytes*len(args)); err != nil {
			return nil, err
		}
		n := &namespace{map[string]any{}}
		for i, v := range args {
			if c.names[i] == "" {
				return nil, errors.New("an argument has no name")
			}
			n.values[c.names[i]] = v
		}
		return n, nil
	}
	bounds := [3]int64{0, 0, 1}
	for i, v := range args {
		k, ok := integer(v)
		if !ok || i > 2 {
			return nil, errors.New("needs one to three integers")
		}
		bounds[i] = k
	}
	if len(args) == 1 {
		bounds[0], bounds[1] = 0, bounds[0]
	}
	if len(args) == 0 || bounds[2] == 0 {
		return nil, errors.New("needs one to three integers, and no step of 0")
	}
	count := countSteps(bounds[0], bounds[1], bounds[2])
	if err := r.take(product(elementBytes, 1+int(min(count, maxMemory)))); err != nil {
		return nil, err
	}
	list := make([]any, count)
	for i := range list {
		list[i] = bounds[0] + int64(i)*bounds[2]
	}
	return list, nil
}

// test returns the result of a test with arguments.
func (r *renderer) test(name string, v any, args []any) (bool, error) {
	switch name {
	case "equalto", "eq", "ne", "in":
		if len(args) != 1 {
			return false, errors.New("needs one argument")
		}
		if name == "in" {
			return r.contains(args[0], v)
		}
		equal, err := r.isEqual(v, args[0])
		return equal == (name != "ne"), err
	}
	if len(args) > 0 {
		return false, errors.New("needs no arguments")
	}
	return isKind(name, v)
}

// choose returns the elements that a test accepts, or those that it refuses. by tests attributes.
func (r *renderer) choose(list []any, args []any, accepts, by bool) (any, error) {
	if by && len(args) == 0 {
		return nil, errors.New("needs an attribute")
	}
	var path []any
	if by {
		var err error
		if path, err = r.splitPath(args[0]); err != nil {
			return nil, err
		}
		args = args[1:]
	}
	if err := r.take(elementBytes * (1 + len(list))); err != nil {
		return nil, err
	}
	chosen := make([]any, 0, len(list))
	for _, x := range list {
		v, err := r.follow(x, path, nil)
		if err != nil {
			return nil, err
		}
		is := isTrue(v)
		if len(args) > 0 {
			name, _ := args[0].(string)
			if err := (&call{kind: '?', name: name}).check(); err != nil {
				return nil, err
			}
			if is, err = r.test(name, v, args[1:]); err != nil {
				return nil, err
			}
		}
		if is == accepts {
			chosen = append(chosen, x)
		}
	}
	return &generator{chosen}, r.spend(stepWork * len(list))
}

// splitPath returns the attributes of a path such as a.b.0.
func (r *renderer) splitPath(path any) ([]any, error) {
	text, ok := path.(string)
	if !ok {
		if _, ok := integer(path); !ok {
			return nil, fmt.Errorf("an attribute by %s is not supported", typeName(path))
		}
		return []any{path}, nil
	}
	if err := r.take(product(stepWork, len(text))); err != nil {
		return nil, err
	}
	var parts []any
	for part := range strings.SplitSeq(text, ".") {
		if i, err := strconv.ParseUint(part, 10, 63); err == nil {
			parts = append(parts, int64(i))
		} else {
			parts = append(parts, part)
		}
	}
	return parts, nil
}

// follow returns the attribute of v at a path. A substitute other than nil takes the place of
// undefined values.
func (r *renderer) follow(v any, path []any, substitute any) (any, error) {
	for _, part := range path {
		err := r.spend(stepWork)
		if err == nil {
			v, err = r.lookup(v, part)
		}
		if err != nil {
			return nil, err
		}
		if _, ok := v.(undefined); ok && substitute != nil {
			v = substitute
		}
	}
	return v, nil
}

// mapAttribute returns the attribute of each element.
func (c *call) mapAttribute(r *renderer, list []any, args []any) (any, error) {
	var path, substitute any
	for i, name := range c.names {
		switch name {
		case "attribute":
			path = args[i]
		case "default":
			substitute = args[i]
		default:
			return nil, fmt.Errorf("argument %s is not supported", cmp.Or(name, strconv.Itoa(i)))
		}
	}
	parts, err := r.splitPath(path)
	if err != nil {
		return nil, err
	}
	if err := r.take(elementBytes * (1 + len(list))); err != nil {
		return nil, err
	}
	mapped := make([]any, len(list))
	for i, x := range list {
		if mapped[i], err = r.follow(x, parts, substitute); err != nil {
			return nil, err
		}
	}
	return &generator{mapped}, r.spend(stepWork * len(list))
}

// mapEach returns the attribute or the filter of each element.
func (c *call) mapEach(r *renderer, list []any, args []any) (any, error) {
	if len(args) == 0 {
		return nil, errors.New("needs a filter or an attribute")
	}
	if c.names[0] != "" {
		return c.mapAttribute(r, list, args)
	}
	name, _ := args[0].(string)
	filter := &call{kind: '|', name: name, names: c.names[1:]}
	if len(list) == 0 {
		return &generator{}, nil
	}
	if err := filter.check(); err != nil {
		return nil, err
	}
	for _, argument := range filter.names {
		if argument != "" && name != "map" && name != "tojson" {
			return nil, fmt.Errorf("%s: argument %s by its name is not supported", name, argument)
		}
	}
	if err := r.take(elementBytes * (1 + len(list))); err != nil {
		return nil, err
	}
	mapped := make([]any, len(list))
	for i, x := range list {
		var err error
		if mapped[i], err = filter.apply(r, x, args[1:]); err != nil {
			return nil, err
		}
	}
	return &generator{mapped}, r.spend(stepWork * len(list))
}

// isKind returns the result of a test of a value's kind.
func isKind(name string, v any) (bool, error) {
	_, isUndefined := v.(undefined)
	_, isString := v.(string)
	_, isList := v.([]any)
	_, isGenerator := v.(*generator)
	_, isMapping := v.(*dict)
	_, isBool := v.(bool)
	_, isFloat := v.(float64)
	i, isInteger := v.(int64)
	switch name {
	case "callable":
		return typeName(v) == "a function", nil
	case "defined":
		return !isUndefined, nil
	case "undefined":
		return isUndefined, nil
	case "none":
		return v == nil, nil
	case "string":
		return isString, nil
	case "mapping":
		return isMapping, nil
	case "iterable", "sequence":
		return isString || isList || isMapping || isUndefined || isGenerator && name == "iterable", nil
	case "number":
		return isInteger || isFloat || isBool, nil
	case "integer":
		return isInteger, nil
	case "boolean":
		return isBool, nil
	case "true":
		return v == true, nil
	case "false":
		return v == false, nil
	}
	if !isInteger {
		return false, fmt.Errorf("%s is no integer", typeName(v))
	}
	return (i%2 != 0) == (name == "odd"), nil
}

// textArgs returns arguments that are texts. It returns an error for others, or for another
// number of them.
func textArgs(args []any, least, most int) ([]string, error) {
	if len(args) < least || len(args) > most {
		return nil, fmt.Errorf("has %d arguments, needs %d to %d", len(args), least, most)
	}
	list := make([]string, len(args))
	for i, v := range args {
		text, ok := v.(string)
		if !ok {
			return nil, fmt.Errorf("argument %d is %s, needs a string", i, typeName(v))
		}
		list[i] = text
	}
	return list, nil
}

// applyString returns the result of a method or filter of a string, and whether it is known.
func (c *call) applyString(r *renderer, s string, args []any) (v any, known bool, err error) {
	var text []string
	arguments := func(least, most int) bool {
		text, err = textArgs(args, least, most)
		return err == nil
	}
	switch c.name {
	case "trim", "strip", "lstrip", "rstrip":
		if !arguments(0, 1) {
			return nil, true, err
		}
		cut := spaces
		if len(text) == 1 {
			cut = text[0]
			if err := r.spend(product(len(s), len(cut))); err != nil {
				return nil, true, err
			}
		}
		if c.name != "rstrip" {
			s = strings.TrimLeft(s, cut)
		}
		if c.name != "lstrip" {
			s = strings.TrimRight(s, cut)
		}
		return s, true, nil
	case "upper", "lower", "capitalize":
		if err := r.take(caseGrowth * (1 + len(s))); err != nil {
			return nil, true, err
		}
		if c.name == "upper" {
			return strings.ToUpper(s), true, nil
		}
		if c.name == "lower" {
			return strings.ToLower(s), true, nil
		}
		first, n := utf8.DecodeRuneInString(s)
		if n == 0 {
			return s, true, nil
		}
		return strings.ToUpper(string(first)) + strings.ToLower(s[n:]), true, nil
	case "length", "count":
		return int64(utf8.RuneCountInString(s)), true, nil
	case "string":
		return s, true, nil
	case "startswith":
		if !arguments(1, 1) {
			return nil, true, err
		}
		return strings.HasPrefix(s, text[0]), true, nil
	case "endswith":
		if !arguments(1, 1) {
			return nil, true, err
		}
		return strings.HasSuffix(s, text[0]), true, nil
	case "split":
		count := int64(-1)
		if len(args) == 2 {
			count, _ = integer(args[1])
			args = args[:1]
		}
		if !arguments(0, 1) {
			return nil, true, err
		}
		parts, n := strings.FieldsFuncSeq(s, isSpace), 0
		if len(text) == 1 {
			if text[0] == "" {
				return nil, true, errors.New("the separator is empty")
			}
			n = 1 + strings.Count(s, text[0])
			if parts = strings.SplitSeq(s, text[0]); count >= 0 && count < int64(n) {
				n = int(count) + 1
				parts = splitFirst(s, text[0], n)
			}
		} else {
			for range parts {
				n++
			}
		}
		if err := r.take(elementBytes * (1 + n)); err != nil {
			return nil, true, err
		}
		list := make([]any, 0, n)
		for part := range parts {
			list = append(list, part)
		}
		return list, true, nil
	case "replace":
		if !arguments(2, 2) {
			return nil, true, err
		}
		n := strings.Count(s, text[0])
		if err := r.take(len(s) + product(n, len(text[1]))); err != nil {
			return nil, true, err
		}
		return strings.ReplaceAll(s, text[0], text[1]), true, nil
	case "join":
		if c.kind != 'm' {
			return nil, false, nil
		}
		if len(args) != 1 {
			return nil, true, errors.New("needs a list")
		}
		v, err := r.join(args[0], s)
		return v, true, err
	}
	return nil, false, nil
}

// caseGrowth bounds the bytes of a character in another case, beside those that it has, with buffers that grow.
const caseGrowth = 6

// isSpace reports whether Python's str.isspace accepts a character.
func isSpace(c rune) bool { return strings.ContainsRune(spaces, c) }

// splitFirst returns the first n parts of s; the last one has the rest.
func splitFirst(s, separator string, n int) iter.Seq[string] {
	return func(yield func(string) bool) {
		for ; n > 1; n-- {
			part, rest, _ := strings.Cut(s, separator)
			if !yield(part) {
				return
			}
			s = rest
		}
		yield(s)
	}
}

// join returns the elements of a list with a separator between them.
func (r *renderer) join(v any, separator string) (string, error) {
	list, err := r.list(v)
	if err != nil {
		return "", err
	}
	size := 0
	for _, x := range list {
		text, err := format(x)
		if err != nil {
			return "", err
		}
		n := len(text) + len(separator)
		if err := r.take(n); err != nil {
			return "", err
		}
		size += n
	}
	var b strings.Builder
	b.Grow(size)
	for i, x := range list {
		text, _ := format(x) // as above
		if i > 0 {
			b.WriteString(separator)
		}
		b.WriteString(text)
	}
	return b.String(), nil
}

// applyDict returns the result of a method or filter of a mapping, and whether it is known.
func (c *call) applyDict(r *renderer, d *dict, args []any) (v any, known bool, err error) {
	switch c.name {
	case "get":
		if len(args) < 1 || len(args) > 2 {
			return nil, true, errors.New("needs a key, and may have a default")
		}
		if key, ok := args[0].(string); ok {
			if err := r.spend(len(key)); err != nil {
				return nil, true, err
			}
			if v, ok := d.values[key]; ok {
				return v, true, nil
			}
		}
		if len(args) == 2 {
			return args[1], true, nil
		}
		return nil, true, nil
	case "items", "keys", "values":
		if len(args) > 0 {
			return nil, true, errors.New("needs no arguments")
		}
		if err := r.take((elementBytes + stepWork) * (1 + len(d.keys))); err != nil { // of items, lists of two elements
			return nil, true, err
		}
		list := make([]any, len(d.keys))
		for i, key := range d.keys {
			switch c.name {
			case "items":
				list[i] = []any{key, d.values[key]}
			case "keys":
				list[i] = key
			default:
				list[i] = d.values[key]
			}
		}
		if c.kind == '|' {
			return &generator{list}, true, nil
		}
		return list, true, nil
	}
	return nil, false, nil
}

// applyFilter returns the result of a filter of any value.
func (c *call) applyFilter(r *renderer, of any, args []any) (any, error) {
	switch c.name {
	case "default", "d":
		if len(args) < 1 || len(args) > 2 {
			return nil, errors.New("needs a value, and may have a boolean")
		}
		_, isUndefined := of.(undefined)
		if isUndefined || len(args) == 2 && isTrue(args[1]) && !isTrue(of) {
			return args[0], nil
		}
		return of, nil
	case "tojson":
		if len(args) > 0 {
			return nil, errors.New("arguments are not supported")
		}
		var b strings.Builder
		err := r.toJSON(&b, of)
		return b.String(), err
	case "string":
		return format(of)
	case "int":
		if x, ok := integer(of); ok {
			return x, nil
		}
		return nil, fmt.Errorf("of %s is not supported", typeName(of))
	case "join":
		separator, err := textArgs(args, 0, 1)
		if err != nil {
			return nil, err
		}
		return r.join(of, strings.Join(separator, ""))
	case "trim", "upper", "lower", "capitalize", "replace":
		text, err := format(of)
		if err != nil {
			return nil, err
		}
		v, _, err := c.applyString(r, text, args)
		return v, err
	}
	g, isGenerator := of.(*generator)
	if isGenerator && (c.name == "length" || c.name == "count" || c.name == "last") {
		return nil, fmt.Errorf("of %s is not supported", typeName(of))
	}
	list, err := r.list(of)
	if err != nil {
		return nil, err
	}
	switch c.name {
	case "length", "count":
		return int64(len(list)), nil
	case "select", "reject", "selectattr", "rejectattr":
		return r.choose(list, args, c.name[0] == 's', strings.HasSuffix(c.name, "attr"))
	case "map":
		return c.mapEach(r, list, args)
	case "first":
		if isGenerator && len(list) > 0 {
			g.list = list[1:]
		}
		if len(list) > 0 {
			return list[0], nil
		}
		return undefined{}, nil
	case "last":
		if len(list) > 0 {
			return list[len(list)-1], nil
		}
		return undefined{}, nil
	case "list":
		if err := r.take(elementBytes + 16*len(list)); err != nil {
			return nil, err
		}
		return append([]any{}, list...), nil
	case "reverse":
		if err := r.take(elementBytes + 16*len(list)); err != nil {
			return nil, err
		}
		turned := make([]any, len(list))
		for i, x := range list {
			turned[len(list)-1-i] = x
		}
		if isGenerator {
			return turned, nil
		}
		if _, ok := of.(string); ok {
			return r.join(turned, "")
		}
		return &generator{turned}, nil
	}
	return nil, fmt.Errorf("of %s is not supported", typeName(of))
}

// formatDate returns a date by the directives of strftime that templates use.
func formatDate(date time.Time, layout string) (string, error) {
	var b strings.Builder
	for i := 0; i < len(layout); i++ {
		if layout[i] != '%' {
			b.WriteByte(layout[i])
			continue
		}
		if i++; i == len(layout) {
			return "", errors.New("% has no letter")
		}
		known := map[byte]string{'d': "02", 'b': "Jan", 'B': "January", 'm': "01", 'Y': "2006", 'y': "06", 'H': "15", 'M': "04", 'S': "05", 'a': "Mon", 'A': "Monday"}
		directive, ok := known[layout[i]]
		if !ok {
			return "", fmt.Errorf("%%%c is not supported", layout[i])
		}
		b.WriteString(date.Format(directive))
	}
	return b.String(), nil
}
