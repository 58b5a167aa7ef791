package chat

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// renderer runs statements.
type renderer struct {
	scopes []map[string]any // the last is the innermost
	out    strings.Builder
	work   int
	calls  int // of macros, that have not ended
	date   time.Time
}

// spend counts work. It returns an error if there was too much.
func (r *renderer) spend(n int) error {
	if r.work += n; r.work > maxWork {
		return errWork
	}
	return nil
}

// product returns a·b, or a number above maxWork where a·b is greater.
func product(a, b int) int {
	if a > 0 && b > maxWork/a {
		return maxWork + 1
	}
	return a * b
}

// write writes text to the output.
func (r *renderer) write(text string) error {
	r.out.WriteString(text)
	return r.spend(len(text))
}

// run runs statements.
func (r *renderer) run(body []statement) error {
	for _, s := range body {
		if err := r.spend(stepWork); err != nil {
			return err
		}
		if err := s.run(r); err != nil {
			return err
		}
	}
	return nil
}

// value returns the value of an expression.
func (r *renderer) value(e expression) (any, error) {
	if err := r.spend(stepWork); err != nil {
		return nil, err
	}
	return e.value(r)
}

// statement is a part of a template that writes or sets.
type statement interface{ run(r *renderer) error }

// expression has a value.
type expression interface {
	value(r *renderer) (any, error)
}

type textStatement string

func (s textStatement) run(r *renderer) error { return r.write(string(s)) }

type printStatement struct{ printed expression }

func (s printStatement) run(r *renderer) error {
	v, err := r.value(s.printed)
	if err != nil {
		return err
	}
	text, err := format(v)
	if err != nil {
		return err
	}
	return r.write(text)
}

type ifStatement struct {
	tests    []expression
	bodies   [][]statement
	elseBody []statement
}

func (s *ifStatement) run(r *renderer) error {
	for i, test := range s.tests {
		v, err := r.value(test)
		if err != nil {
			return err
		}
		if isTrue(v) {
			return r.run(s.bodies[i])
		}
	}
	return r.run(s.elseBody)
}

type forStatement struct {
	names          []string
	list, test     expression // test may be nil
	body, elseBody []statement
}

func (s *forStatement) run(r *renderer) error {
	v, err := r.value(s.list)
	if err != nil {
		return err
	}
	all, err := r.list(v)
	if err != nil {
		return err
	}
	scope := map[string]any{}
	r.scopes = append(r.scopes, scope)
	defer func() { r.scopes = r.scopes[:len(r.scopes)-1] }()
	list := all
	if s.test != nil {
		list = nil
		for _, x := range all {
			if err := s.bind(r, scope, x); err != nil {
				return err
			}
			keep, err := r.value(s.test)
			if err != nil {
				return err
			}
			if isTrue(keep) {
				list = append(list, x)
			}
		}
	}
	n := int64(len(list))
	for i, x := range list {
		clear(scope)
		if err := s.bind(r, scope, x); err != nil {
			return err
		}
		loop := newDict()
		at := int64(i)
		for _, f := range []struct {
			name  string
			value any
		}{{"index", at + 1}, {"index0", at}, {"revindex", n - at}, {"revindex0", n - at - 1}, {"first", i == 0}, {"last", at == n-1}, {"length", n}, {"depth", int64(1)}, {"depth0", int64(0)}} {
			loop.set(f.name, f.value)
		}
		if i > 0 {
			loop.set("previtem", list[i-1])
		}
		if i+1 < len(list) {
			loop.set("nextitem", list[i+1])
		}
		scope["loop"] = loop
		if err := r.spend(8 * stepWork); err != nil {
			return err
		}
		switch err := r.run(s.body); {
		case errors.Is(err, errBreak):
			if g, ok := v.(*generator); ok && s.test == nil {
				g.list = all[i+1:] // the loop is read up to here
			}
			return nil
		case err != nil && !errors.Is(err, errContinue):
			return err
		}
	}
	if n == 0 {
		clear(scope)
		return r.run(s.elseBody)
	}
	return nil
}

// bind sets the names of a loop to an element.
func (s *forStatement) bind(r *renderer, scope map[string]any, x any) error {
	if len(s.names) == 1 {
		scope[s.names[0]] = x
		return nil
	}
	parts, err := r.list(x)
	if err != nil {
		return err
	}
	if len(parts) != len(s.names) {
		return fmt.Errorf("for: an element has %d parts, there are %d names", len(parts), len(s.names))
	}
	for i, name := range s.names {
		scope[name] = parts[i]
	}
	return nil
}

type setStatement struct {
	name, field string // field of a namespace; "": none
	value       expression
	body        []statement // in place of value
}

func (s *setStatement) run(r *renderer) error {
	var v any
	var err error
	if s.value != nil {
		v, err = r.value(s.value)
	} else {
		v, err = r.capture(s.body)
	}
	if err != nil {
		return err
	}
	if s.field == "" {
		r.scopes[len(r.scopes)-1][s.name] = v
		return nil
	}
	n, ok := r.find(s.name).(*namespace)
	if !ok {
		return fmt.Errorf("set: %s is no namespace", s.name)
	}
	n.values[s.field] = v
	return nil
}

// capture returns what statements write.
func (r *renderer) capture(body []statement) (string, error) {
	out := r.out
	r.out = strings.Builder{}
	err := r.run(body)
	text := r.out.String()
	r.out = out
	return text, err
}

// find returns the value of a name.
func (r *renderer) find(name string) any {
	for i := len(r.scopes) - 1; i >= 0; i-- {
		if v, ok := r.scopes[i][name]; ok {
			return v
		}
	}
	if slices.Contains(functions, name) {
		return function(name)
	}
	return undefined{}
}

type dictExpression struct{ keys, values []expression }

func (e *dictExpression) value(r *renderer) (any, error) {
	d := newDict()
	for i := range e.keys {
		key, err := r.value(e.keys[i])
		if err != nil {
			return nil, err
		}
		name, ok := key.(string)
		if !ok {
			return nil, fmt.Errorf("a mapping by %s is not supported", typeName(key))
		}
		v, err := r.value(e.values[i])
		if err != nil {
			return nil, err
		}
		if err := r.spend(len(name)); err != nil {
			return nil, err
		}
		d.set(name, v)
	}
	return d, nil
}

type constant struct{ v any }

func (e constant) value(*renderer) (any, error) { return e.v, nil }

type variable string

func (e variable) value(r *renderer) (any, error) { return r.find(string(e)), r.spend(len(r.scopes)) }

type listExpression []expression

func (e listExpression) value(r *renderer) (any, error) {
	list := make([]any, len(e))
	for i, x := range e {
		var err error
		if list[i], err = r.value(x); err != nil {
			return nil, err
		}
	}
	return list, nil
}

type conditional struct{ test, value1, value2 expression }

func (e *conditional) value(r *renderer) (any, error) {
	v, err := r.value(e.test)
	switch {
	case err != nil:
		return nil, err
	case isTrue(v):
		return r.value(e.value1)
	}
	return r.value(e.value2)
}

type logical struct {
	first, second expression
	isOr          bool
}

func (e *logical) value(r *renderer) (any, error) {
	v, err := r.value(e.first)
	if err != nil || isTrue(v) == e.isOr {
		return v, err
	}
	return r.value(e.second)
}

type negation struct{ negated expression }

func (e *negation) value(r *renderer) (any, error) {
	v, err := r.value(e.negated)
	return !isTrue(v), err
}

type attribute struct{ owner, name expression }

func (e *attribute) value(r *renderer) (any, error) {
	v, err := r.value(e.owner)
	if err != nil {
		return nil, err
	}
	name, err := r.value(e.name)
	if err != nil {
		return nil, err
	}
	return r.lookup(v, name)
}

type slice struct {
	owner expression
	parts [3]expression
}

func (e *slice) value(r *renderer) (any, error) {
	v, err := r.value(e.owner)
	if err != nil {
		return nil, err
	}
	if _, ok := v.(*generator); ok {
		return nil, fmt.Errorf("slice: of %s is not supported", typeName(v))
	}
	list, err := r.list(v)
	if err != nil {
		return nil, err
	}
	n := int64(len(list))
	step := int64(1)
	var bounds [2]*int64
	for i, part := range e.parts {
		if part == nil {
			continue
		}
		x, err := r.value(part)
		if err != nil {
			return nil, err
		}
		k, ok := integer(x)
		if !ok && x != nil {
			return nil, fmt.Errorf("slice: %s is no integer", typeName(x))
		}
		switch {
		case x == nil:
		case i == 2:
			step = k
		default:
			bounds[i] = &k
		}
	}
	if step == 0 || step == math.MinInt64 {
		return nil, errors.New("slice: the step is 0")
	}
	from, to := int64(0), n
	low, high := int64(0), n
	if step < 0 {
		from, to, low, high = n-1, -1, -1, n-1
	}
	for i, b := range bounds {
		if b == nil {
			continue
		}
		k := *b
		if k < 0 {
			k += n
		}
		k = min(max(k, low), high)
		if i == 0 {
			from = k
		} else {
			to = k
		}
	}
	out := []any{}
	for i := from; step > 0 && i < to || step < 0 && i > to; {
		out = append(out, list[i])
		if step > n || step < -n {
			break
		}
		i += step
	}
	if _, ok := v.(string); ok {
		var b strings.Builder
		for _, c := range out {
			b.WriteString(c.(string))
		}
		return b.String(), nil
	}
	return out, r.spend(16 * len(out))
}

type binary struct {
	operator      string
	first, second expression
}

func (e *binary) value(r *renderer) (any, error) {
	a, err := r.value(e.first)
	if err != nil {
		return nil, err
	}
	b, err := r.value(e.second)
	if err != nil {
		return nil, err
	}
	switch e.operator {
	case "==", "!=":
		equal, err := r.isEqual(a, b)
		return equal == (e.operator == "=="), err
	case "in", "not in":
		has, err := r.contains(b, a)
		return has == (e.operator == "in"), err
	case "<", "<=", ">", ">=":
		return r.compare(e.operator, a, b)
	case "~":
		left, err := format(a)
		if err != nil {
			return nil, err
		}
		right, err := format(b)
		if err != nil {
			return nil, err
		}
		if err := r.spend(len(left) + len(right)); err != nil {
			return nil, err
		}
		return left + right, nil
	case "+":
		switch a := a.(type) {
		case string:
			if b, ok := b.(string); ok {
				if err := r.spend(len(a) + len(b)); err != nil {
					return nil, err
				}
				return a + b, nil
			}
		case []any:
			if b, ok := b.([]any); ok {
				if err := r.spend(16 * (len(a) + len(b))); err != nil {
					return nil, err
				}
				return append(append([]any{}, a...), b...), nil
			}
		}
	}
	return calculate(e.operator, a, b)
}

// contains reports whether a value has an element, a key or a part.
func (r *renderer) contains(v, x any) (bool, error) {
	switch v := v.(type) {
	case undefined:
		return false, nil
	case string:
		part, ok := x.(string)
		if !ok {
			return false, fmt.Errorf("in: %s is no part of a string", typeName(x))
		}
		return strings.Contains(v, part), r.spend(len(v))
	case *dict:
		key, ok := x.(string)
		_, has := v.values[key]
		return ok && has, r.spend(len(key))
	}
	list, err := r.list(v)
	if err != nil {
		return false, err
	}
	for i, y := range list {
		equal, err := r.isEqual(x, y)
		if g, ok := v.(*generator); ok && equal {
			g.list = list[i+1:] // it is read up to the match
		}
		if err != nil || equal {
			return equal, err
		}
	}
	return false, nil
}

// compare returns the order of two numbers or strings.
func (r *renderer) compare(operator string, a, b any) (bool, error) {
	order := 0
	if left, ok := a.(string); ok {
		right, ok := b.(string)
		if !ok {
			return false, fmt.Errorf("%s: a string and %s have no order", operator, typeName(b))
		}
		if err := r.spend(min(len(left), len(right))); err != nil {
			return false, err
		}
		order = strings.Compare(left, right)
	} else {
		x, isX := number(a)
		y, isY := number(b)
		if !isX || !isY {
			return false, fmt.Errorf("%s: %s and %s have no order", operator, typeName(a), typeName(b))
		}
		switch {
		case x < y:
			order = -1
		case x > y:
			order = 1
		}
	}
	switch operator {
	case "<":
		return order < 0, nil
	case "<=":
		return order <= 0, nil
	case ">":
		return order > 0, nil
	}
	return order >= 0, nil
}

// calculate returns the result of an operator on numbers.
func calculate(operator string, a, b any) (any, error) {
	x, isX := integer(a)
	y, isY := integer(b)
	if isX && isY && operator != "/" {
		switch operator {
		case "+":
			return x + y, nil
		case "-":
			return x - y, nil
		case "*":
			return x * y, nil
		}
		if y == 0 {
			return nil, fmt.Errorf("%s: division by 0", operator)
		}
		rest := x % y
		quotient := x / y
		if rest != 0 && (rest < 0) != (y < 0) {
			rest, quotient = rest+y, quotient-1
		}
		if operator == "%" {
			return rest, nil
		}
		return quotient, nil
	}
	f, isX := number(a)
	g, isY := number(b)
	if !isX || !isY {
		return nil, fmt.Errorf("%s: of %s and %s is not supported", operator, typeName(a), typeName(b))
	}
	switch operator {
	case "+":
		return f + g, nil
	case "-":
		return f - g, nil
	case "*":
		return f * g, nil
	}
	if g == 0 {
		return nil, fmt.Errorf("%s: division by 0", operator)
	}
	switch operator {
	case "/":
		return f / g, nil
	case "//":
		return math.Floor(f / g), nil
	}
	return nil, fmt.Errorf("%s: of numbers that are not whole is not supported", operator)
}
