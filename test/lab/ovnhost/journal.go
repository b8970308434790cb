package ovnhost

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// journalName is the journal's name in the lab's directory.
const journalName = "journal"

// journal is a file with everything that a lab has created, one JSON object per line. It is written before a
// namespace is created, and as soon as a process has a PID, so that another process can remove
// everything after a SIGKILL.
type journal struct {
	mu   sync.Mutex
	file *os.File
}

// entry is a line of the journal; one member is set.
type entry struct {
	Owner     *owner   `json:"owner,omitempty"`
	Namespace string   `json:"namespace,omitempty"`
	Process   *process `json:"process,omitempty"`
}

// owner is the first line: the process that created the lab, and whether the lab outlives it.
type owner struct {
	process
	Survive bool `json:"survive"`
}

// process identifies a process: PIDs are reused, but not together with their start time.
type process struct {
	Pid   int    `json:"pid"`
	Start uint64 `json:"start"` // in clock ticks since boot
}

// createJournal creates the lab's directory, which must not exist, and the journal in it.
func createJournal(dir string, survive bool) (*journal, error) {
	unlock, err := lockState()
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := os.Mkdir(dir, 0o755); err != nil {
		if errors.Is(err, os.ErrExist) {
			return nil, fmt.Errorf("a lab of this name exists in %s: remove it with Cleanup first", dir)
		}
		return nil, fmt.Errorf("make lab's folder: %w", err)
	}
	file, err := os.OpenFile(filepath.Join(dir, journalName), os.O_CREATE|os.O_EXCL|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("create journal: %w", err)
	}
	j := &journal{file: file}
	self, err := processOf(os.Getpid())
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return j, j.add(entry{Owner: &owner{process: self, Survive: survive}})
}

// lockState prevents other processes from starting and cleaning up labs until unlock is called.
func lockState() (unlock func(), err error) {
	if err := os.MkdirAll(stateRoot, 0o755); err != nil {
		return nil, fmt.Errorf("make folder of labs: %w", err)
	}
	dir, err := os.Open(stateRoot)
	if err != nil {
		return nil, fmt.Errorf("open folder of labs: %w", err)
	}
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX); err != nil {
		return nil, errors.Join(fmt.Errorf("lock folder of labs: %w", err), dir.Close())
	}
	return func() { _ = dir.Close() }, nil
}

func (j *journal) addNamespace(name string) error { return j.add(entry{Namespace: name}) }

// addProcess records a child that was not waited for yet.
func (j *journal) addProcess(pid int) error {
	p, err := processOf(pid)
	if err != nil {
		return err
	}
	return j.add(entry{Process: &p})
}

func (j *journal) add(e entry) error {
	line, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("encode line of journal: %w", err)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if _, err := j.file.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("write journal: %w", err)
	}
	return nil
}

func (j *journal) close() error { return j.file.Close() }

// readJournal reads a lab's journal. A lab that was killed early may have none, and the last line may be
// incomplete.
func readJournal(dir string) ([]entry, error) {
	file, err := os.Open(filepath.Join(dir, journalName))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read journal: %w", err)
	}
	defer func() { _ = file.Close() }()
	var entries []entry
	for d := json.NewDecoder(file); ; {
		var e entry
		switch err := d.Decode(&e); {
		case err == nil:
			entries = append(entries, e)
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return entries, nil
		default:
			return nil, fmt.Errorf("read journal %s: %w", file.Name(), err)
		}
	}
}

// processOf identifies the current process with a PID.
func processOf(pid int) (process, error) {
	p, _, err := look(pid)
	return p, err
}

// alive reports whether exactly this process exists and runs. An exited process that nobody has
// waited for keeps its PID.
func (p process) alive() bool {
	now, state, err := look(p.Pid)
	return err == nil && now == p && state != "Z" && state != "X"
}

// look reads the process with a PID, and its state (proc(5)).
func look(pid int) (p process, state string, err error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return process{}, "", fmt.Errorf("look for process %d: %w", pid, err)
	}
	// The second field, the program's name in parentheses, may contain any character.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	const startTime = 22 - 3 // of proc(5), counted from the third field, the state
	if len(fields) <= startTime {
		return process{}, "", fmt.Errorf("look for process %d: %d fields in stat", pid, len(fields))
	}
	start, err := strconv.ParseUint(fields[startTime], 10, 64)
	if err != nil {
		return process{}, "", fmt.Errorf("look for process %d: %w", pid, err)
	}
	return process{Pid: pid, Start: start}, fields[0], nil
}
