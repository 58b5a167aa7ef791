package model

import (
	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/param"
)

// ownMechanism is linear attention with a learned number and a drawn one for each head.
type ownMechanism struct {
	attention.Mechanism
	params, constants param.Set
}

func (m *ownMechanism) Params() *param.Set    { return &m.params }
func (m *ownMechanism) Constants() *param.Set { return &m.constants }
