package optim

import "math"

// Schedule returns the learning rate of each step, counted from 0.
type Schedule interface{ Rate(step int) float64 }

// Constant is a schedule that has the same rate at every step.
type Constant float64

// Rate returns the learning rate of a step.
func (c Constant) Rate(int) float64 { return float64(c) }

// Cosine rises linearly to Peak over WarmUp steps, then falls to Floor along half a cosine
// until step Steps, and stays there (Loshchilov and Hutter 2017, arXiv 1608.03983, eq. 5,
// without restarts).
type Cosine struct {
	Peak, Floor   float64
	WarmUp, Steps int
}

// Rate returns the learning rate of a step.
func (c Cosine) Rate(step int) float64 {
	switch {
	case step < c.WarmUp:
		return c.Peak * float64(step+1) / float64(c.WarmUp)
	case step >= c.Steps:
		return c.Floor
	}
	done := float64(step-c.WarmUp) / float64(c.Steps-c.WarmUp)
	return c.Floor + (c.Peak-c.Floor)*(1+math.Cos(math.Pi*done))/2
}

// Linear rises linearly to Peak over WarmUp steps, then falls linearly to Floor until step
// Steps, and stays there.
type Linear struct {
	Peak, Floor   float64
	WarmUp, Steps int
}

// Rate returns the learning rate of a step.
func (l Linear) Rate(step int) float64 {
	switch {
	case step < l.WarmUp:
		return l.Peak * float64(step+1) / float64(l.WarmUp)
	case step >= l.Steps:
		return l.Floor
	}
	left := float64(l.Steps-step) / float64(l.Steps-l.WarmUp)
	return l.Floor + (l.Peak-l.Floor)*left
}
