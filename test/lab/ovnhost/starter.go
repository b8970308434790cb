package ovnhost

import (
	"os/exec"
	"runtime"
)

// starter starts all processes of a lab from one thread that lives as long as the lab. The kernel sends the parent-death signal
// when the forking thread ends, not the process, and other threads of a Go program may end earlier.
type starter struct {
	requests chan startRequest
	done     chan struct{}
}

type startRequest struct {
	cmd    *exec.Cmd
	result chan<- error
}

func newStarter() *starter {
	s := &starter{requests: make(chan startRequest), done: make(chan struct{})}
	go s.run()
	return s
}

func (s *starter) run() {
	defer close(s.done)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for r := range s.requests {
		r.result <- r.cmd.Start()
	}
}

func (s *starter) start(cmd *exec.Cmd) error {
	result := make(chan error)
	s.requests <- startRequest{cmd, result}
	return <-result
}

// close ends the thread, after the processes have ended.
func (s *starter) close() {
	close(s.requests)
	<-s.done
}
