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
	"unicode"
	"unicode/utf8"
)

// The names that templates may use.
var (
	functions = []string{"raise_exception", "strftime_now", "namespace", "range", "dict"}
	filters   = []string{"trim", "upper", "lower", "capitalize", "length", "count", "tojson", "default", "d", "join", "first", "last", "replace", "string", "list", "int", "items", "reverse", "select", "reject", "selectattr", "rejectattr", "map",
		"sort", "unique", "min", "max", "sum", "dictsort", "indent", "title", "float", "abs", "round", "format", "safe", "wordcount",
		"groupby", "batch", "truncate", "center", "e", "escape"}
	tests = []string{"defined", "undefined", "none", "string", "mapping", "iterable", "sequence", "number", "integer", "boolean", "true", "false", "odd", "even", "callable", "equalto", "eq", "ne", "in",
		"sameas", "float", "divisibleby", "upper", "lower", "gt", "ge", "lt", "le", "greaterthan", "lessthan", "filter", "test"}
	methods = []string{"strip", "lstrip", "rstrip", "split", "startswith", "endswith", "upper", "lower", "capitalize", "replace", "join", "get", "items", "keys", "values",
		"title", "rsplit", "splitlines", "find", "count", "index", "isdigit", "isalpha", "isalnum", "isspace", "isupper", "islower", "removeprefix", "removesuffix", "cycle", "changed",
		"format", "rjust", "ljust", "center", "zfill"}
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
	}
	if m == nil && c.name != "namespace" && c.name != "dict" && (c.kind != 'm' || c.name != "format") && (c.kind != '|' || c.name != "map") {
		var err error
		if args, err = bindNames(c.name, args, c.names); err != nil {
			return nil, err
		}
	}
	var v any
	var err error
	if m != nil {
		caller := r.caller
		if r.called != c { // a call among the arguments
			caller = nil
		}
		v, err = m.apply(r, args, c.names, caller)
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
	if l, ok := of.(*loop); ok && c.kind == 'm' {
		return l.apply(r, c.name, args)
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
	case "namespace", "dict":
		if err := r.take(objectBytes + entryBytes*len(args)); err != nil {
			return nil, err
		}
		d := newDict()
		for i, v := range args {
			name := c.names[i]
			if first, ok := v.(*dict); ok && name == "" && i == 0 {
				if err := r.take(entryBytes * len(first.keys)); err != nil {
					return nil, err
				}
				for _, key := range first.keys {
					d.set(key, first.values[key])
				}
				continue
			}
			if name == "" {
				return nil, errors.New("an argument has no name")
			}
			d.set(name, v)
		}
		if c.name == "dict" {
			return d, nil
		}
		return &namespace{d.values}, nil
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
	case "sameas":
		if len(args) == 1 {
			equal, err := r.isEqual(v, args[0])
			return equal && typeName(v) == typeName(args[0]), err
		}
		return false, errors.New("needs one argument")
	case "divisibleby", "gt", "ge", "lt", "le", "greaterthan", "lessthan":
		if len(args) != 1 {
			return false, errors.New("needs one argument")
		}
		if name != "divisibleby" {
			return r.compare(map[string]string{"gt": ">", "greaterthan": ">", "ge": ">=", "lt": "<", "lessthan": "<", "le": "<="}[name], v, args[0])
		}
		rest, err := calculate("%", v, args[0])
		return rest == any(int64(0)), err
	case "filter", "test":
		known := filters
		if name == "test" {
			known = tests
		}
		text, ok := v.(string)
		return ok && slices.Contains(known, text), nil
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
	rest := args[1:]
	if name != "map" {
		var err error
		if rest, err = bindNames(name, rest, filter.names); err != nil {
			return nil, err
		}
	}
	if err := r.take(elementBytes * (1 + len(list))); err != nil {
		return nil, err
	}
	mapped := make([]any, len(list))
	for i, x := range list {
		var err error
		if mapped[i], err = filter.apply(r, x, rest); err != nil {
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
	case "float":
		return isFloat, nil
	case "upper", "lower":
		text, err := format(v)
		if name == "upper" {
			return isCased(text, unicode.IsLower), err
		}
		return isCased(text, unicode.IsUpper), err
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
		if c.kind == 'm' {
			if !arguments(1, 1) {
				return nil, true, err
			}
			return int64(strings.Count(s, text[0])), true, nil
		}
		return int64(utf8.RuneCountInString(s)), true, nil
	case "string", "safe":
		return s, true, nil
	case "title":
		if err := r.take(caseGrowth * (1 + len(s))); err != nil {
			return nil, true, err
		}
		if c.kind == '|' {
			return titleFilter(s), true, nil
		}
		return titleMethod(s), true, nil
	case "indent":
		v, err := r.indent(s, args)
		return v, true, err
	case "format":
		if c.kind == 'm' {
			v, err := r.formatBraces(s, args, c.names)
			return v, true, err
		}
		v, err := r.formatText(s, args)
		return v, true, err
	case "rjust", "ljust", "center", "zfill":
		v, err := r.justify(c.name, s, args)
		return v, true, err
	case "truncate":
		v, err := truncate(s, args)
		return v, true, err
	case "e", "escape":
		if err := r.take(5 * len(s)); err != nil {
			return nil, true, err
		}
		return strings.NewReplacer("&", "&amp;", ">", "&gt;", "<", "&lt;", "'", "&#39;", `"`, "&#34;").Replace(s), true, nil
	case "wordcount":
		return int64(len(strings.FieldsFunc(s, func(c rune) bool { return c != '_' && !unicode.IsLetter(c) && !unicode.IsNumber(c) }))), true, nil
	case "find", "index":
		if !arguments(1, 1) {
			return nil, true, err
		}
		at := strings.Index(s, text[0])
		if at < 0 && c.name == "index" {
			return nil, true, errors.New("the text is not found")
		}
		return int64(utf8.RuneCountInString(s[:max(at, 0)])) + int64(min(at, 0)), true, nil
	case "removeprefix", "removesuffix":
		if !arguments(1, 1) {
			return nil, true, err
		}
		if c.name == "removeprefix" {
			return strings.TrimPrefix(s, text[0]), true, nil
		}
		return strings.TrimSuffix(s, text[0]), true, nil
	case "isdigit", "isalpha", "isalnum", "isspace":
		is := map[string]func(rune) bool{"isdigit": unicode.IsDigit, "isalpha": unicode.IsLetter, "isspace": isSpace, "isalnum": func(c rune) bool { return unicode.IsLetter(c) || unicode.IsNumber(c) }}[c.name]
		return s != "" && strings.IndexFunc(s, func(c rune) bool { return !is(c) }) < 0, true, nil
	case "isupper":
		return isCased(s, unicode.IsLower), true, nil
	case "islower":
		return isCased(s, unicode.IsUpper), true, nil
	case "splitlines":
		lines := splitLines(s)
		if err := r.take(elementBytes * (1 + len(lines))); err != nil {
			return nil, true, err
		}
		list := make([]any, len(lines))
		for i, line := range lines {
			list[i] = line
		}
		return list, true, nil
	case "rsplit":
		if len(args) != 2 {
			return (&call{kind: c.kind, name: "split", names: c.names}).applyString(r, s, args)
		}
		count, _ := integer(args[1])
		separator, err := textArgs(args[:1], 1, 1)
		if err != nil || separator[0] == "" {
			return nil, true, cmp.Or(err, errors.New("the separator is empty"))
		}
		var parts []any
		for ; count != 0; count-- {
			at := strings.LastIndex(s, separator[0])
			if at < 0 {
				break
			}
			if err := r.take(elementBytes + at); err != nil {
				return nil, true, err
			}
			parts, s = append(parts, s[at+len(separator[0]):]), s[:at]
		}
		parts = append(parts, s)
		slices.Reverse(parts)
		return parts, true, nil
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
		most := int64(-1)
		if len(args) == 3 {
			most, _ = integer(args[2])
			args = args[:2]
		}
		if !arguments(2, 2) {
			return nil, true, err
		}
		n := strings.Count(s, text[0])
		if most >= 0 {
			n = min(n, int(most))
		}
		if err := r.take(len(s) + product(n, len(text[1]))); err != nil {
			return nil, true, err
		}
		return strings.Replace(s, text[0], text[1], n), true, nil
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
		text, err := r.format(x)
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
		text, _ := r.format(x) // as above
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

// isCased reports whether a text has letters, and none of the other case.
func isCased(s string, isOther func(rune) bool) bool {
	return strings.ContainsFunc(s, unicode.IsLetter) && !strings.ContainsFunc(s, isOther)
}

// applyFilter returns the result of a filter of any value.
func (c *call) applyFilter(r *renderer, of any, args []any) (any, error) {
	if v, known, err := c.applyNumber(of, args); known {
		return v, err
	}
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
		style, err := newJSONStyle(args)
		if err != nil {
			return nil, err
		}
		var b strings.Builder
		err = r.toJSON(&b, of, style, 0)
		return b.String(), err
	case "string", "safe":
		return r.format(of)
	case "join":
		attribute := argument(args, 1, nil)
		separator, isText := argument(args, 0, "").(string)
		if !isText || len(args) > 2 {
			return nil, fmt.Errorf("the separator is %s, needs a string", typeName(argument(args, 0, "")))
		}
		if attribute != nil {
			list, err := r.list(of)
			if err != nil {
				return nil, err
			}
			of, err = (&call{kind: '|', name: "map", names: []string{"attribute"}}).mapAttribute(r, list, []any{attribute})
			if err != nil {
				return nil, err
			}
		}
		return r.join(of, separator)
	case "dictsort":
		d, ok := of.(*dict)
		if !ok {
			return nil, fmt.Errorf("of %s is not supported", typeName(of))
		}
		return r.sortDict(d, args)
	case "trim", "upper", "lower", "capitalize", "replace", "title", "indent", "wordcount", "truncate", "center", "e", "escape":
		text, err := r.format(of)
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
	if v, known, err := c.applyListFilter(r, list, args); known {
		return v, err
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
		plain := layout[i] == '-' && i+1 < len(layout) // without zeros before
		if plain {
			i++
		}
		if text, ok := formatDatePart(date, layout[i]); ok {
			if plain {
				text = cmp.Or(strings.TrimLeft(text, "0 "), "0")
			}
			b.WriteString(text)
			continue
		}
		return "", fmt.Errorf("%%%c is not supported", layout[i])
	}
	return b.String(), nil
}

// dateLayouts are layouts of package time for letters of strftime, in the locale C.
var dateLayouts = map[byte]string{
	'd': "02", 'b': "Jan", 'h': "Jan", 'B': "January", 'm': "01", 'Y': "2006", 'y': "06", 'H': "15", 'I': "03", 'p': "PM", 'M': "04", 'S': "05",
	'a': "Mon", 'A': "Monday", 'e': "_2", 'j': "002", 'F': "2006-01-02", 'T': "15:04:05", 'D': "01/02/06", 'x': "01/02/06", 'X': "15:04:05",
	'R': "15:04", 'r': "03:04:05 PM", 'c': "Mon Jan _2 15:04:05 2006", 'z': "-0700", 'Z': "MST",
}

// formatDatePart returns the part of a date for a letter of strftime, and whether the letter is known.
func formatDatePart(date time.Time, letter byte) (string, bool) {
	year, week := date.ISOWeek()
	weekday := int(date.Weekday())
	switch letter {
	case '%':
		return "%", true
	case 'n':
		return "\n", true
	case 't':
		return "\t", true
	case 'f':
		return fmt.Sprintf("%06d", date.Nanosecond()/1000), true
	case 'k':
		return fmt.Sprintf("%2d", date.Hour()), true
	case 'l':
		return fmt.Sprintf("%2d", (date.Hour()+11)%12+1), true
	case 's':
		return strconv.FormatInt(date.Unix(), 10), true
	case 'C':
		return fmt.Sprintf("%02d", date.Year()/100), true
	case 'G':
		return strconv.Itoa(year), true
	case 'g':
		return fmt.Sprintf("%02d", year%100), true
	case 'V':
		return fmt.Sprintf("%02d", week), true
	case 'u':
		return strconv.Itoa((weekday+6)%7 + 1), true
	case 'w':
		return strconv.Itoa(weekday), true
	case 'U':
		return fmt.Sprintf("%02d", (date.YearDay()+6-weekday)/7), true
	case 'W':
		return fmt.Sprintf("%02d", (date.YearDay()+6-(weekday+6)%7)/7), true
	}
	layout, known := dateLayouts[letter]
	return date.Format(layout), known
}
