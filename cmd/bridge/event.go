package bridge

import "sync"

// event happens once.
type event struct {
	once *sync.Once
	done chan struct{} // closed when it has happened
}

func newEvent() event { return event{new(sync.Once), make(chan struct{})} }

// happen makes it happen, unless it has.
func (e event) happen() { e.once.Do(func() { close(e.done) }) }

func (e event) happened() bool {
	select {
	case <-e.done:
		return true
	default:
		return false
	}
}
