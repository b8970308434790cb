package nic

// After lets f be called after each step.
func (m *Mover) After(f func(Step) error) { m.done = f }
