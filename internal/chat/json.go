package chat

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
)

// parseJSON returns the value of a JSON text. Objects keep their order. It returns an error if text is no value, or is
// nested too deep, and the errors of take.
func (r *renderer) parseJSON(text json.RawMessage) (any, error) {
	if err := r.take(2 * len(text)); err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	v, err := r.readJSON(d, 0)
	if err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is more after the value")
	}
	return v, nil
}

// readJSON returns the next value of d.
func (r *renderer) readJSON(d *json.Decoder, depth int) (any, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("is nested more than %d deep", maxDepth)
	}
	t, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch t := t.(type) {
	case json.Number:
		if n, err := t.Int64(); err == nil {
			return n, nil
		}
		x, err := t.Float64()
		if err != nil || math.IsInf(x, 0) {
			return nil, fmt.Errorf("the number %.40s is too large", t)
		}
		return x, nil
	case json.Delim:
		if t == '[' {
			return r.readList(d, depth)
		}
		return r.readDict(d, depth)
	}
	return t, nil // nil, a bool or a string
}

func (r *renderer) readList(d *json.Decoder, depth int) (any, error) {
	list := []any{}
	for d.More() {
		if err := r.take(elementBytes); err != nil {
			return nil, err
		}
		v, err := r.readJSON(d, depth+1)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	_, err := d.Token()
	return list, err
}

func (r *renderer) readDict(d *json.Decoder, depth int) (any, error) {
	if err := r.take(objectBytes); err != nil {
		return nil, err
	}
	x := newDict()
	for d.More() {
		if err := r.take(entryBytes); err != nil {
			return nil, err
		}
		key, err := d.Token()
		if err != nil {
			return nil, err
		}
		v, err := r.readJSON(d, depth+1)
		if err != nil {
			return nil, err
		}
		x.set(key.(string), v)
	}
	_, err := d.Token()
	return x, err
}
