package model

import (
	"fmt"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/comm"
	"github.com/farfield-ml/farfield/rng"
)

func TestDividedRefuses(t *testing.T) {
	c := decoders()["conv"]
	m := made(t, c)
	b := batch(c, 3, 2, 5, false)
	models := []*Model{m, made(t, c), made(t, c), made(t, c)}
	err := comm.RunLocal(4, func(ranks *comm.Comm) error {
		_, err := models[ranks.Rank()].TrainDivided(t.Context(), ranks, b, 1)
		return err
	})
	if err == nil || !strings.Contains(err.Error(), "segment: 2 tokens, needs 1 or more, and those of the convolution") {
		t.Errorf("parts shorter than the convolution: %v", err)
	}
	if err := m.CanDivide(); err != nil {
		t.Error(err)
	}
	c.Mechanism, c.Set, c.Order = "softmax", nil, 0
	m, err = New(c, rng.New(1))
	if err != nil {
		t.Fatal(err)
	}
	if err := m.CanDivide(); err == nil || !strings.Contains(fmt.Sprint(err), "softmax") {
		t.Errorf("softmax: %v", err)
	}
}
