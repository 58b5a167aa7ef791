package chat

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// parameters are the names of arguments in order.
var parameters = map[string][]string{
	"tojson": {"ensure_ascii", "indent", "separators", "sort_keys"}, "sort": {"reverse", "case_sensitive", "attribute"},
	"dictsort": {"case_sensitive", "by", "reverse"}, "unique": {"case_sensitive", "attribute"}, "indent": {"width", "first", "blank"},
	"default": {"default_value", "boolean"}, "d": {"default_value", "boolean"}, "join": {"d", "attribute"}, "round": {"precision", "method"},
	"int": {"default", "base"}, "float": {"default"}, "sum": {"attribute", "start"}, "min": {"case_sensitive", "attribute"},
	"max": {"case_sensitive", "attribute"}, "split": {"sep", "maxsplit"}, "rsplit": {"sep", "maxsplit"}, "replace": {"old", "new", "count"},
	"groupby": {"attribute", "default", "case_sensitive"}, "batch": {"linecount", "fill_with"}, "truncate": {"length", "killwords", "end", "leeway"},
	"center": {"width"},
}

// absent is an argument that a call leaves out before another one.
type absent struct{}

// bindNames returns arguments in the order of the parameters of name. It returns an error for an
// argument that there is not, or that is given twice.
func bindNames(name string, args []any, names []string) ([]any, error) {
	order := parameters[name]
	bound := make([]any, 0, len(args))
	for i, v := range args {
		if names[i] == "" {
			bound = append(bound, v)
			continue
		}
		at := slices.Index(order, names[i])
		if at < 0 {
			return nil, fmt.Errorf("%s: argument %s by its name is not supported", name, names[i])
		}
		for len(bound) <= at {
			bound = append(bound, absent{})
		}
		if bound[at] != any(absent{}) {
			return nil, fmt.Errorf("%s: argument %s is given twice", name, names[i])
		}
		bound[at] = v
	}
	return bound, nil
}

// argument returns argument i, or a value where it is left out.
func argument(args []any, i int, byDefault any) any {
	if i >= len(args) || args[i] == any(absent{}) {
		return byDefault
	}
	return args[i]
}

// maxArguments returns an error if there are more arguments than most.
func maxArguments(args []any, most int) error {
	if len(args) > most {
		return fmt.Errorf("has %d arguments, at most %d", len(args), most)
	}
	return nil
}

// jsonStyle is how tojson writes.
type jsonStyle struct {
	isASCII, isSorted, isIndented bool
	indent, item, key             string
}

// newJSONStyle returns the style that arguments of tojson ask for.
func newJSONStyle(args []any) (*jsonStyle, error) {
	s := &jsonStyle{item: ", ", key: ": "}
	if err := maxArguments(args, 4); err != nil {
		return nil, err
	}
	s.isASCII, s.isSorted = isTrue(argument(args, 0, false)), isTrue(argument(args, 3, false))
	switch indent := argument(args, 1, nil).(type) {
	case nil:
	case string:
		s.indent, s.isIndented = indent, true
	default:
		n, ok := integer(indent)
		if !ok || n > maxDepth {
			return nil, fmt.Errorf("indent is %s, needs to be a text or a number up to %d", typeName(indent), maxDepth)
		}
		s.indent, s.isIndented = strings.Repeat(" ", int(max(n, 0))), true
	}
	if s.isIndented {
		s.item = ","
	}
	if given := argument(args, 2, nil); given != nil {
		list, _ := given.([]any)
		texts, err := textArgs(list, 2, 2)
		if err != nil {
			return nil, errors.New("separators need to be two texts")
		}
		s.item, s.key = texts[0], texts[1]
	}
	return s, nil
}

// sortKey returns the value by which filters order an element: of an attribute, texts without regard to
// case unless told.
func (r *renderer) sortKey(x any, path []any, isExact bool) (any, error) {
	v, err := r.follow(x, path, nil)
	if text, ok := v.(string); ok && !isExact {
		if err := r.take(caseGrowth * (1 + len(text))); err != nil {
			return nil, err
		}
		return strings.ToLower(text), err
	}
	return v, err
}

// sortKeys returns sortKey of each element for each attribute of a list with commas.
func (r *renderer) sortKeys(list []any, attribute any, isExact bool) (keys [][]any, err error) {
	paths := [][]any{nil}
	if text, ok := attribute.(string); ok {
		paths = nil
		for part := range strings.SplitSeq(text, ",") {
			path, err := r.splitPath(part)
			if err != nil {
				return nil, err
			}
			paths = append(paths, path)
		}
	} else if attribute != nil {
		path, err := r.splitPath(attribute)
		if err != nil {
			return nil, err
		}
		paths[0] = path
	}
	if err := r.take(product(elementBytes*len(paths), 1+len(list))); err != nil {
		return nil, err
	}
	for _, x := range list {
		key := make([]any, len(paths))
		for i, path := range paths {
			if key[i], err = r.sortKey(x, path, isExact); err != nil {
				return nil, err
			}
		}
		keys = append(keys, key)
	}
	return keys, nil
}

// sorted returns the elements of a list in the order of their keys, equal ones as they were.
func (r *renderer) sorted(list []any, keys [][]any, isReverse bool) ([]any, error) {
	order := make([]int, len(list))
	for i := range order {
		order[i] = i
	}
	var failed error
	less := func(a, b any) bool {
		is, err := r.compare("<", a, b)
		failed = cmp.Or(failed, err)
		return is
	}
	slices.SortStableFunc(order, func(i, j int) int {
		for k := range keys[i] {
			a, b := keys[i][k], keys[j][k]
			if isReverse {
				a, b = b, a
			}
			switch {
			case failed != nil:
				return 0
			case less(a, b):
				return -1
			case less(b, a):
				return 1
			}
		}
		return 0
	})
	if failed != nil {
		return nil, failed
	}
	if err := r.take(elementBytes * (1 + len(list))); err != nil {
		return nil, err
	}
	result := make([]any, len(list))
	for i, at := range order {
		result[i] = list[at]
	}
	return result, nil
}

// applyListFilter returns the result of a filter of a list, and whether it is known.
func (c *call) applyListFilter(r *renderer, list []any, args []any) (v any, known bool, err error) {
	switch c.name {
	case "sort":
		if err := maxArguments(args, 3); err != nil {
			return nil, true, err
		}
		keys, err := r.sortKeys(list, argument(args, 2, nil), isTrue(argument(args, 1, false)))
		if err != nil {
			return nil, true, err
		}
		v, err := r.sorted(list, keys, isTrue(argument(args, 0, false)))
		return v, true, err
	case "unique", "min", "max":
		if err := maxArguments(args, 2); err != nil {
			return nil, true, err
		}
		keys, err := r.sortKeys(list, argument(args, 1, nil), isTrue(argument(args, 0, false)))
		if err != nil {
			return nil, true, err
		}
		if c.name == "unique" {
			v, err := r.unique(list, keys)
			return v, true, err
		}
		best := -1
		for i := range list {
			if best < 0 {
				best = i
				continue
			}
			a, b := keys[i][0], keys[best][0]
			if c.name == "max" {
				a, b = b, a
			}
			is, err := r.compare("<", a, b)
			if err != nil {
				return nil, true, err
			}
			if is {
				best = i
			}
		}
		if best < 0 {
			return undefined{}, true, nil
		}
		return list[best], true, nil
	case "groupby":
		v, err := r.groupBy(list, args)
		return v, true, err
	case "batch":
		v, err := r.batch(list, args)
		return v, true, err
	case "sum":
		if err := maxArguments(args, 2); err != nil {
			return nil, true, err
		}
		var path []any
		if attribute := argument(args, 0, nil); attribute != nil {
			if path, err = r.splitPath(attribute); err != nil {
				return nil, true, err
			}
		}
		total := argument(args, 1, int64(0))
		for _, x := range list {
			y, err := r.follow(x, path, nil)
			if err == nil {
				total, err = (&binary{"+", constant{total}, constant{y}}).value(r)
			}
			if err != nil {
				return nil, true, err
			}
		}
		return total, true, nil
	}
	return nil, false, nil
}

// unique returns the first element of each key.
func (r *renderer) unique(list []any, keys [][]any) (any, error) {
	var chosen []any
	var have []any
	texts := map[string]bool{}
	if err := r.take((elementBytes + entryBytes) * (1 + len(list))); err != nil {
		return nil, err
	}
next:
	for i, x := range list {
		key := keys[i][0]
		if text, ok := key.(string); ok {
			if !texts[text] {
				texts[text] = true
				chosen = append(chosen, x)
			}
			continue
		}
		for _, other := range have {
			equal, err := r.isEqual(key, other)
			if err == nil {
				err = r.spend(stepWork)
			}
			if err != nil {
				return nil, err
			}
			if equal {
				continue next
			}
		}
		have, chosen = append(have, key), append(chosen, x)
	}
	return &generator{chosen}, nil
}

// sortDict returns the items of a mapping in the order of keys or values.
func (r *renderer) sortDict(d *dict, args []any) (any, error) {
	if err := maxArguments(args, 3); err != nil {
		return nil, err
	}
	by := argument(args, 1, "key")
	if by != "key" && by != "value" {
		return nil, errors.New("by is neither key nor value")
	}
	if err := r.take((elementBytes + stepWork) * (1 + len(d.keys))); err != nil {
		return nil, err
	}
	items := make([]any, len(d.keys))
	keys := make([][]any, len(d.keys))
	for i, key := range d.keys {
		items[i] = []any{key, d.values[key]}
		of := any(key)
		if by == "value" {
			of = d.values[key]
		}
		v, err := r.sortKey(of, nil, isTrue(argument(args, 0, false)))
		if err != nil {
			return nil, err
		}
		keys[i] = []any{v}
	}
	return r.sorted(items, keys, isTrue(argument(args, 2, false)))
}

// applyNumber returns the result of a filter of a number, and whether it is known.
func (c *call) applyNumber(of any, args []any) (v any, known bool, err error) {
	x, isNumber := number(of)
	whole, isWhole := integer(of)
	switch c.name {
	case "int":
		byDefault := argument(args, 0, int64(0))
		switch text, isText := of.(string); {
		case len(args) > 1:
			return nil, true, errors.New("argument base is not supported")
		case isText:
			text = strings.ReplaceAll(strings.Trim(text, spaces), "_", "")
			if n, err := strconv.ParseInt(text, 10, 64); err == nil {
				return n, true, nil
			}
			if x, err = strconv.ParseFloat(text, 64); err != nil {
				return byDefault, true, nil
			}
		case isWhole:
			return whole, true, nil
		case !isNumber:
			return byDefault, true, nil
		}
		if !(math.Abs(x) < 1<<63) {
			return nil, true, fmt.Errorf("of %s is beyond an integer of 64 bits", formatFloat(x))
		}
		return int64(x), true, nil
	case "float":
		if text, ok := of.(string); ok {
			if x, err := strconv.ParseFloat(strings.Trim(text, spaces), 64); err == nil {
				return x, true, nil
			}
		}
		if !isNumber {
			return argument(args, 0, 0.0), true, nil
		}
		return x, true, nil
	case "abs":
		switch {
		case isWhole && whole == math.MinInt64 || !isNumber:
			return nil, true, fmt.Errorf("of %s is not supported", typeName(of))
		case isWhole:
			return max(whole, -whole), true, nil
		}
		return math.Abs(x), true, nil
	case "round":
		precision, ok := integer(argument(args, 0, int64(0)))
		if !ok || precision < 0 || precision > 15 || !isNumber {
			return nil, true, fmt.Errorf("of %s is not supported, with a precision of 0 to 15", typeName(of))
		}
		scale := math.Pow(10, float64(precision))
		switch argument(args, 1, "common") {
		case "common":
			if isWhole {
				return whole, true, nil
			}
			x, err := strconv.ParseFloat(strconv.FormatFloat(x, 'f', int(precision), 64), 64)
			return x, true, err
		case "ceil":
			return math.Ceil(x*scale) / scale, true, nil
		case "floor":
			return math.Floor(x*scale) / scale, true, nil
		}
		return nil, true, errors.New("the method is none of common, ceil and floor")
	}
	return nil, false, nil
}

// splitLines returns the lines of a text as Python's splitlines does.
func splitLines(s string) []string {
	var lines []string
	start, after := 0, -1
	for i, c := range s {
		if i < after || !strings.ContainsRune("\n\r\v\f\x1c\x1d\x1e\u0085\u2028\u2029", c) {
			continue
		}
		lines = append(lines, s[start:i])
		start = i + len(string(c))
		if c == '\r' && strings.HasPrefix(s[start:], "\n") {
			start++
		}
		after = start
	}
	if start < len(s) {
		lines = append(lines, s[start:])
	}
	return lines
}

// indent returns a text whose lines after the first begin with spaces or a text.
func (r *renderer) indent(s string, args []any) (string, error) {
	if err := maxArguments(args, 3); err != nil {
		return "", err
	}
	with, isText := argument(args, 0, int64(4)).(string)
	if !isText {
		n, ok := integer(argument(args, 0, int64(4)))
		if !ok || n > maxMemory {
			return "", errors.New("the width is no number or text")
		}
		if err := r.take(int(max(n, 0))); err != nil {
			return "", err
		}
		with = strings.Repeat(" ", int(max(n, 0)))
	}
	lines := splitLines(s + "\n")
	if err := r.take(product(1+len(lines), 1+len(with)) + growth*len(s)); err != nil {
		return "", err
	}
	blank := isTrue(argument(args, 2, false))
	var b strings.Builder
	if isTrue(argument(args, 1, false)) {
		b.WriteString(with)
	}
	for i, line := range lines {
		if i > 0 {
			b.WriteByte('\n')
			if blank || line != "" {
				b.WriteString(with)
			}
		}
		b.WriteString(line)
	}
	return b.String(), nil
}

// titleFilter returns a text whose words begin with a capital, as Jinja divides words.
func titleFilter(s string) string {
	first := true
	return strings.Map(func(c rune) rune {
		if isSpace(c) || strings.ContainsRune("-({[<", c) {
			first = true
			return c
		}
		if first {
			first = false
			return unicode.ToUpper(c)
		}
		return unicode.ToLower(c)
	}, s)
}

// titleMethod returns a text as Python's title does: letters after others are small.
func titleMethod(s string) string {
	inWord := false
	return strings.Map(func(c rune) rune {
		was := inWord
		if inWord = unicode.IsLetter(c); !inWord {
			return c
		}
		if was {
			return unicode.ToLower(c)
		}
		return unicode.ToTitle(c)
	}, s)
}

// power returns x to the y-th.
func power(x, y int64) (any, error) {
	if y < 0 {
		return math.Pow(float64(x), float64(y)), nil
	}
	result := int64(1)
	for range min(y, 64) {
		next, ok := calculateWhole("*", result, x)
		if !ok {
			return nil, fmt.Errorf("**: of %d and %d is beyond an integer of 64 bits", x, y)
		}
		result = next
	}
	if y > 64 && x != 0 && x != 1 && x != -1 {
		return nil, fmt.Errorf("**: of %d and %d is beyond an integer of 64 bits", x, y)
	}
	if x == -1 && y%2 == 0 {
		return int64(1), nil
	}
	if x == -1 {
		return int64(-1), nil
	}
	return result, nil
}

// formatText returns a text whose directives of Python's % are replaced by values: one, a list of
// them, or a mapping for directives with a name.
func (r *renderer) formatText(layout string, values any) (string, error) {
	list, isList := values.([]any)
	if !isList || strings.Count(strings.ReplaceAll(layout, "%%", ""), "%") == 1 && len(list) != 1 {
		list = []any{values}
	}
	mapping, _ := values.(*dict)
	next := 0
	var b strings.Builder
	for {
		text, rest, has := strings.Cut(layout, "%")
		if err := r.take(growth * len(text)); err != nil {
			return "", err
		}
		b.WriteString(text)
		if !has {
			break
		}
		if layout = rest; strings.HasPrefix(layout, "%") {
			b.WriteByte('%')
			layout = layout[1:]
			continue
		}
		var v any
		isNamed := strings.HasPrefix(layout, "(")
		if isNamed {
			name, rest, closed := strings.Cut(layout[1:], ")")
			if mapping == nil || !closed {
				return "", errors.New("%: a directive with a name needs a mapping")
			}
			value, has := mapping.values[name]
			if !has {
				return "", fmt.Errorf("%%: the mapping has no %.80q", name)
			}
			v, layout = value, rest
		}
		flags := layout[:len(layout)-len(strings.TrimLeft(layout, "-+ 0#"))]
		layout = layout[len(flags):]
		width := layout[:len(layout)-len(strings.TrimLeft(layout, "0123456789"))]
		layout = layout[len(width):]
		precision := -1
		if strings.HasPrefix(layout, ".") {
			digits := layout[1 : len(layout)-len(strings.TrimLeft(layout[1:], "0123456789"))]
			layout = layout[1+len(digits):]
			precision, _ = strconv.Atoi(cmp.Or(digits, "0"))
		}
		size, _ := strconv.Atoi(cmp.Or(width, "0"))
		if size > maxMemory || precision > 1000 || layout == "" {
			return "", errors.New("%: the directive is too wide, or has no letter")
		}
		if !isNamed {
			if next == len(list) {
				return "", errors.New("%: there are not enough values")
			}
			v = list[next]
			next++
		}
		if err := r.take(growth * (size + max(precision, 0))); err != nil {
			return "", err
		}
		part, err := r.formatDirective(layout[0], flags, precision, v)
		if err != nil {
			return "", err
		}
		layout = layout[1:]
		pad := strings.Repeat(" ", max(size-len([]rune(part)), 0))
		isDigits := strings.ContainsAny(part, "0123456789") && !strings.HasPrefix(part, "'")
		switch {
		case strings.Contains(flags, "-"):
			part += pad
		case strings.Contains(flags, "0") && isDigits:
			sign := part[:len(part)-len(strings.TrimLeft(part, "+- "))]
			part = sign + strings.Repeat("0", len(pad)) + part[len(sign):]
		default:
			part = pad + part
		}
		if err := r.take(growth * len(part)); err != nil {
			return "", err
		}
		b.WriteString(part)
	}
	if mapping == nil && next < len(list) {
		return "", errors.New("%: not all values are used")
	}
	return b.String(), nil
}

// formatDirective returns a value by the letter of a directive.
func (r *renderer) formatDirective(letter byte, flags string, precision int, v any) (string, error) {
	sign := func(text string) string {
		for _, s := range []string{"+", " "} {
			if strings.Contains(flags, s) && !strings.HasPrefix(text, "-") {
				return s + text
			}
		}
		return text
	}
	x, isNumber := number(v)
	switch letter {
	case 's', 'r':
		text, err := r.format(v)
		if letter == 'r' {
			text, err = r.represent(v)
		}
		if runes := []rune(text); precision >= 0 && precision < len(runes) {
			text = string(runes[:precision])
		}
		return text, err
	case 'd', 'i':
		if n, ok := integer(v); ok {
			return sign(strconv.FormatInt(n, 10)), nil
		}
		if isNumber && math.Abs(x) < 1<<63 {
			return sign(strconv.FormatInt(int64(x), 10)), nil
		}
	case 'x', 'X', 'o':
		if n, ok := integer(v); ok {
			text := strconv.FormatInt(n, map[byte]int{'o': 8}[letter]+map[byte]int{'x': 16, 'X': 16}[letter])
			if letter == 'X' {
				text = strings.ToUpper(text)
			}
			return sign(text), nil
		}
	case 'f', 'F', 'e', 'g':
		if isNumber {
			if precision < 0 {
				precision = 6
			}
			if letter == 'g' {
				precision = max(precision, 1)
			}
			return sign(strconv.FormatFloat(x, map[byte]byte{'f': 'f', 'F': 'f', 'e': 'e', 'g': 'g'}[letter], precision, 64)), nil
		}
	default:
		return "", fmt.Errorf("%%%c is not supported", letter)
	}
	return "", fmt.Errorf("%%%c: of %s is not supported", letter, typeName(v))
}

// format returns a value as text, lists and mappings as Python writes them.
func (r *renderer) format(v any) (string, error) {
	switch v.(type) {
	case []any, *dict:
		return r.represent(v)
	}
	return format(v)
}

// represent returns a value as Python's repr does.
func (r *renderer) represent(v any) (string, error) {
	var b strings.Builder
	err := r.appendRepr(&b, v)
	return b.String(), err
}

func (r *renderer) appendRepr(b *strings.Builder, v any) error {
	if err := r.take(stepWork); err != nil {
		return err
	}
	switch v := v.(type) {
	case string:
		if err := r.take(growth * 6 * len(v)); err != nil {
			return err
		}
		b.WriteString(quotePython(v))
	case undefined:
		b.WriteString("Undefined")
	case []any:
		if err := r.spend(nestWork); err != nil {
			return err
		}
		b.WriteByte('[')
		for i, x := range v {
			if i > 0 {
				b.WriteString(", ")
			}
			if err := r.appendRepr(b, x); err != nil {
				return err
			}
		}
		b.WriteByte(']')
	case *dict:
		if err := r.spend(nestWork); err != nil {
			return err
		}
		b.WriteByte('{')
		for i, key := range v.keys {
			if i > 0 {
				b.WriteString(", ")
			}
			if err := r.appendRepr(b, key); err != nil {
				return err
			}
			b.WriteString(": ")
			if err := r.appendRepr(b, v.values[key]); err != nil {
				return err
			}
		}
		b.WriteByte('}')
	default:
		text, err := format(v)
		b.WriteString(text)
		return err
	}
	return nil
}

// quotePython returns a text in quotes, as Python's repr does.
func quotePython(s string) string {
	quote := '\''
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		quote = '"'
	}
	var b strings.Builder
	b.WriteRune(quote)
	for _, c := range s {
		switch {
		case c == quote || c == '\\':
			b.WriteByte('\\')
			b.WriteRune(c)
		case c == '\n':
			b.WriteString(`\n`)
		case c == '\r':
			b.WriteString(`\r`)
		case c == '\t':
			b.WriteString(`\t`)
		case c == ' ' || unicode.IsPrint(c):
			b.WriteRune(c)
		case c < 0x100:
			fmt.Fprintf(&b, `\x%02x`, c)
		case c < 0x10000:
			fmt.Fprintf(&b, `\u%04x`, c)
		default:
			fmt.Fprintf(&b, `\U%08x`, c)
		}
	}
	b.WriteRune(quote)
	return b.String()
}

// groupBy returns the elements by the values of an attribute, in their order: lists of a value and its
// elements.
func (r *renderer) groupBy(list []any, args []any) (any, error) {
	if err := maxArguments(args, 3); err != nil {
		return nil, err
	}
	path, err := r.splitPath(argument(args, 0, nil))
	if err != nil {
		return nil, err
	}
	if err := r.take(2 * elementBytes * (1 + len(list))); err != nil {
		return nil, err
	}
	pairs, keys := make([]any, len(list)), make([][]any, len(list))
	for i, x := range list {
		v, err := r.follow(x, path, argument(args, 1, nil))
		if err != nil {
			return nil, err
		}
		key, err := r.sortKey(v, nil, isTrue(argument(args, 2, false)))
		if err != nil {
			return nil, err
		}
		pairs[i], keys[i] = []any{v, key, x}, []any{key}
	}
	if pairs, err = r.sorted(pairs, keys, false); err != nil {
		return nil, err
	}
	groups := []any{}
	var last, members []any
	for i, pair := range pairs {
		p, _ := pair.([]any)
		same := i > 0
		if same {
			if same, err = r.isEqual(p[1], last[1]); err != nil {
				return nil, err
			}
		}
		if !same {
			if err := r.take(4 * elementBytes); err != nil {
				return nil, err
			}
			members = nil
			groups = append(groups, []any{p[0], members})
			last = p
		}
		members = append(members, p[2])
		groups[len(groups)-1].([]any)[1] = members
	}
	return groups, nil
}

// batch returns the elements in lists of a number of them.
func (r *renderer) batch(list []any, args []any) (any, error) {
	n, ok := integer(argument(args, 0, nil))
	if !ok || n < 1 || len(args) > 2 {
		return nil, errors.New("needs a number of elements, and may have one that fills")
	}
	fill := argument(args, 1, nil)
	if err := r.take(2 * elementBytes * (1 + len(list))); err != nil {
		return nil, err
	}
	if fill != nil {
		if err := r.take(product(elementBytes, int(min(n, maxMemory)))); err != nil {
			return nil, err
		}
	}
	rows := []any{}
	for len(list) > 0 {
		k := min(len(list), int(min(n, int64(len(list)))))
		row := append([]any{}, list[:k]...)
		for list = list[k:]; fill != nil && int64(len(row)) < n; {
			row = append(row, fill)
		}
		rows = append(rows, row)
	}
	return &generator{rows}, nil
}

// truncate returns the beginning of a text, with an end that says so.
func truncate(s string, args []any) (string, error) {
	length, isLength := integer(argument(args, 0, int64(255)))
	leeway, isLeeway := integer(argument(args, 3, int64(5)))
	end, isEnd := argument(args, 2, "...").(string)
	runes := []rune(s)
	room := length - int64(len([]rune(end)))
	switch {
	case !isLength || !isLeeway || !isEnd || len(args) > 4 || room < 0 || leeway < 0:
		return "", errors.New("needs a length that has room for the end")
	case int64(len(runes))-leeway <= length:
		return s, nil
	}
	s = string(runes[:room])
	if !isTrue(argument(args, 1, false)) {
		if at := strings.LastIndexByte(s, ' '); at >= 0 {
			s = s[:at]
		}
	}
	return s + end, nil
}

// justify returns a text with characters before or after it up to a width.
func (r *renderer) justify(name, s string, args []any) (string, error) {
	width, ok := integer(argument(args, 0, int64(80)))
	fill, isText := argument(args, 1, map[bool]string{true: "0", false: " "}[name == "zfill"]).(string)
	if !ok || !isText || len([]rune(fill)) != 1 || len(args) > 2 {
		return "", errors.New("needs a width, and may have a character")
	}
	pad := max(width-int64(len([]rune(s))), 0)
	if err := r.take(product(len(fill), int(min(pad, maxMemory+1))) + len(s)); err != nil {
		return "", err
	}
	before := pad
	switch name {
	case "ljust":
		before = 0
	case "center":
		before = pad/2 + pad&width&1
	case "zfill":
		sign := s[:len(s)-len(strings.TrimLeft(s, "+-"))]
		return sign + strings.Repeat(fill, int(pad)) + s[len(sign):], nil
	}
	return strings.Repeat(fill, int(before)) + s + strings.Repeat(fill, int(pad-before)), nil
}

// formatBraces returns a text whose {}, {0} and {name} are replaced by arguments, as Python's
// str.format does. It returns an error for other fields.
func (r *renderer) formatBraces(s string, args []any, names []string) (string, error) {
	var b strings.Builder
	next := 0
	for s != "" {
		at := strings.IndexAny(s, "{}")
		if at < 0 {
			at = len(s)
		}
		if err := r.take(growth * (1 + at)); err != nil {
			return "", err
		}
		b.WriteString(s[:at])
		if s = s[at:]; s == "" {
			break
		}
		if strings.HasPrefix(s, "{{") || strings.HasPrefix(s, "}}") {
			b.WriteByte(s[0])
			s = s[2:]
			continue
		}
		field, rest, closed := strings.Cut(s[1:], "}")
		if s[0] == '}' || !closed {
			return "", errors.New("a field has no end or no beginning")
		}
		index, err := strconv.Atoi(field)
		if field == "" {
			index, err = next, nil
			next++
		}
		if err != nil {
			index = slices.Index(names, field)
		}
		if index < 0 || index >= len(args) || field == "" && names[index] != "" {
			return "", fmt.Errorf("field %.80q has no argument, or is not supported", field)
		}
		text, err := r.format(args[index])
		if err != nil {
			return "", err
		}
		if err := r.take(growth * len(text)); err != nil {
			return "", err
		}
		b.WriteString(text)
		s = rest
	}
	return b.String(), nil
}
