package child

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// Signal sends a process a signal. For SIGSTOP it waits until all threads of the process have stopped: the
// kernel stops them asynchronously, and a running thread may still answer requests.
func Signal(p *os.Process, s syscall.Signal) error {
	if err := p.Signal(s); err != nil || s != syscall.SIGSTOP {
		return err
	}
	for range 1000 {
		if stopped(p.Pid) {
			return nil
		}
		<-time.After(5 * time.Millisecond)
	}
	return fmt.Errorf("process %d goes on after %s", p.Pid, s)
}

// stopped reports whether all threads of a process are stopped.
func stopped(pid int) bool {
	tasks, err := filepath.Glob(filepath.Join("/proc", strconv.Itoa(pid), "task", "*", "stat"))
	if err != nil {
		return false
	}
	for _, task := range tasks {
		stat, err := os.ReadFile(task)
		if err != nil {
			continue // it has ended
		}
		// proc(5): the name in parentheses, which may hold any character, then the state.
		_, state, _ := bytes.Cut(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" "))
		if !bytes.HasPrefix(state, []byte("T")) && !bytes.HasPrefix(state, []byte("Z")) {
			return false
		}
	}
	return true
}
