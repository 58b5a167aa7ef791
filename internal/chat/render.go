package chat

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"math/bits"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// renderer runs statements.
type renderer struct {
	scopes []map[string]any // the last is the innermost
	out    strings.Builder
	calls  int // of macros, that have not ended

	called   *call  // of the statement call that runs; nil: none
	caller   *macro // that it gives to its macro
	captured string // of capturedText

	date time.Time

	work     int
	memory   int // of values, also of those that are dropped
	reserved int // bytes of memory that were reported to reserve
	reserve  func(bytes int) error
}

// spend counts work before it is done. It returns an error if there was too much.
func (r *renderer) spend(n int) error {
	if n > maxWork-r.work {
		r.work = maxWork
		return errWork
	}
	r.work += n
	return nil
}

// take counts memory, and as much work, before a value of so many bytes is made. It returns an error if there
// was too much, or if nobody has room for it.
func (r *renderer) take(n int) error {
	if n > maxMemory-r.memory {
		return errMemory
	}
	if err := r.spend(n); err != nil {
		return err
	}
	r.memory += n
	if more := r.memory - r.reserved; more > 0 && r.reserve != nil {
		more = (more + reserveBytes - 1) / reserveBytes * reserveBytes
		if err := r.reserve(more); err != nil {
			return &reserveError{err}
		}
		r.reserved += more
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
	if err := r.take(growth * len(text)); err != nil {
		return err
	}
	r.out.WriteString(text)
	return nil
}

// growth is the memory of a text that grows by and by, in its bytes: earlier copies are dropped.
const growth = 4

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

// located is a statement with its line.
type located struct {
	statement
	line int
}

// run runs the statement. Its error names the line of the innermost statement.
func (s located) run(r *renderer) error {
	err := s.statement.run(r)
	var inner *lineError
	if err == nil || isFinal(err) || errors.Is(err, errBreak) || errors.Is(err, errContinue) || errors.As(err, &inner) {
		return err
	}
	return &lineError{s.line, err}
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
	text, err := r.format(v)
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
	if err := r.take(objectBytes + 3*entryBytes); err != nil {
		return err
	}
	scope := map[string]any{}
	r.scopes = append(r.scopes, scope)
	defer func() { r.scopes = r.scopes[:len(r.scopes)-1] }()
	list := all
	if s.test != nil {
		if err := r.take(elementBytes * len(all)); err != nil {
			return err
		}
		list = make([]any, 0, len(all))
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
	n := len(list)
	var last any = undefined{} // of loop.changed
	for i, x := range list {
		clear(scope)
		if err := s.bind(r, scope, x); err != nil {
			return err
		}
		if err := r.take(stepWork); err != nil {
			return err
		}
		scope["loop"] = &loop{list: list, at: i, last: &last}
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
	name, field string   // field of a namespace; "": none
	names       []string // further names, each for an element of the value
	value       expression
	body        []statement // in place of value
	filters     expression  // of what body writes
}

func (s *setStatement) run(r *renderer) error {
	var v any
	var err error
	if s.value != nil {
		v, err = r.value(s.value)
	} else {
		v, err = r.captureFiltered(s.body, s.filters)
	}
	if err != nil {
		return err
	}
	if len(s.names) > 0 {
		parts, err := r.list(v)
		if err != nil {
			return err
		}
		if len(parts) != len(s.names)+1 {
			return fmt.Errorf("set: the value has %d parts, there are %d names", len(parts), len(s.names)+1)
		}
		scope := r.scopes[len(r.scopes)-1]
		for i, name := range append([]string{s.name}, s.names...) {
			scope[name] = parts[i]
		}
		return r.take(entryBytes * len(parts))
	}
	if s.field == "" {
		scope := r.scopes[len(r.scopes)-1]
		if _, ok := scope[s.name]; !ok {
			err = r.take(entryBytes)
		}
		scope[s.name] = v
		return err
	}
	n, ok := r.find(s.name).(*namespace)
	if !ok {
		return fmt.Errorf("set: %s is no namespace", s.name)
	}
	if _, ok := n.values[s.field]; !ok {
		err = r.take(entryBytes)
	}
	n.values[s.field] = v
	return err
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
	if err := r.take(objectBytes + entryBytes*len(e.keys)); err != nil {
		return nil, err
	}
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
	if err := r.take(elementBytes * (1 + len(e))); err != nil {
		return nil, err
	}
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
	var list []any
	var chars []rune // of a string
	n := int64(0)
	text, isText := v.(string)
	if isText {
		if err := r.take(4 * len(text)); err != nil {
			return nil, err
		}
		chars = []rune(text)
		n = int64(len(chars))
	} else {
		if list, err = r.list(v); err != nil {
			return nil, err
		}
		n = int64(len(list))
	}
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
	if step == 0 {
		return nil, errors.New("slice: the step is 0")
	}
	step = min(max(step, -n-1), n+1) // one element, as with any longer step
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
	count := countSteps(from, to, step)
	if isText {
		if err := r.take(utf8.UTFMax * int(count)); err != nil {
			return nil, err
		}
		part := make([]rune, 0, count)
		for i := range count {
			part = append(part, chars[from+i*step])
		}
		return string(part), nil
	}
	if err := r.take(elementBytes + 16*int(count)); err != nil {
		return nil, err
	}
	part := make([]any, 0, count)
	for i := range count {
		part = append(part, list[from+i*step])
	}
	return part, nil
}

// countSteps returns the number of steps from an integer to one that is not reached.
func countSteps(from, to, step int64) int64 {
	var distance, size uint64 // differences of two integers may be beyond an int64
	switch {
	case step > 0 && from < to:
		distance, size = uint64(to)-uint64(from), uint64(step)
	case step < 0 && from > to:
		distance, size = uint64(from)-uint64(to), -uint64(step)
	default:
		return 0
	}
	return int64(min((distance-1)/size+1, math.MaxInt64))
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
		left, err := r.format(a)
		if err != nil {
			return nil, err
		}
		right, err := r.format(b)
		if err != nil {
			return nil, err
		}
		if err := r.take(len(left) + len(right)); err != nil {
			return nil, err
		}
		return left + right, nil
	case "+":
		switch a := a.(type) {
		case string:
			if b, ok := b.(string); ok {
				if err := r.take(len(a) + len(b)); err != nil {
					return nil, err
				}
				return a + b, nil
			}
		case []any:
			if b, ok := b.([]any); ok {
				if err := r.take(elementBytes + 16*(len(a)+len(b))); err != nil {
					return nil, err
				}
				return slices.Concat(a, b), nil
			}
		}
	case "%":
		if text, ok := a.(string); ok {
			return r.formatText(text, b)
		}
	case "*":
		if n, ok := integer(b); ok {
			if text, ok := a.(string); ok {
				n = max(n, 0)
				if err := r.take(product(len(text), int(min(n, maxMemory+1)))); err != nil {
					return nil, err
				}
				return strings.Repeat(text, int(n)), nil
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
		if err := r.spend(len(v)); err != nil {
			return false, err
		}
		return strings.Contains(v, part), nil
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
		var isNumber, isOrdered bool
		order, isOrdered, isNumber = compareNumbers(a, b)
		if !isNumber {
			return false, fmt.Errorf("%s: %s and %s have no order", operator, typeName(a), typeName(b))
		}
		if !isOrdered {
			return false, nil
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

// calculate returns the result of an operator on numbers. It returns an error for a whole result beyond 64 bits.
func calculate(operator string, a, b any) (any, error) {
	x, isX := integer(a)
	y, isY := integer(b)
	if isX && isY {
		if operator == "**" {
			return power(x, y)
		}
		if y == 0 && operator != "+" && operator != "-" && operator != "*" {
			return nil, fmt.Errorf("%s: division by 0", operator)
		}
		if operator == "/" {
			quotient, _ := new(big.Rat).SetFrac(big.NewInt(x), big.NewInt(y)).Float64()
			return quotient, nil
		}
		result, ok := calculateWhole(operator, x, y)
		if !ok {
			return nil, fmt.Errorf("%s: of %d and %d is beyond an integer of 64 bits", operator, x, y)
		}
		return result, nil
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

// calculateWhole returns the whole result of an operator, as Python has it, and whether an int64 has it. y is not 0
// in a division.
func calculateWhole(operator string, x, y int64) (result int64, ok bool) {
	switch operator {
	case "+":
		result = x + y
		return result, (result > x) == (y > 0)
	case "-":
		result = x - y
		return result, (result < x) == (y > 0)
	case "*":
		high, low := bits.Mul64(magnitude(x), magnitude(y))
		isNegative := (x < 0) != (y < 0)
		return x * y, high == 0 && (low <= math.MaxInt64 || isNegative && low == 1<<63)
	}
	rest, quotient := x%y, x/y
	if rest != 0 && (rest < 0) != (y < 0) {
		rest, quotient = rest+y, quotient-1
	}
	if operator == "%" {
		return rest, true
	}
	return quotient, x != math.MinInt64 || y != -1
}

// magnitude returns the absolute value of x.
func magnitude(x int64) uint64 {
	if x < 0 {
		return -uint64(x)
	}
	return uint64(x)
}
