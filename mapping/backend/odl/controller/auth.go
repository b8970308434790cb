package controller

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
)

// credentials reads the user and password for the controller from a file.
type credentials struct {
	path string

	mu       sync.Mutex
	modified time.Time
	size     int64
	last     login
}

type login struct{ user, password string }

// maxAuthFile is the maximum size of the file in bytes. It prevents that a wrong file is
// read by mistake.
const maxAuthFile = 4096

// get returns the current credentials. It reads the file again if it has changed.
func (c *credentials) get() (login, error) {
	if c.path == "" {
		return login{}, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	info, err := os.Stat(c.path)
	if err != nil {
		return login{}, fmt.Errorf("read credentials of OpenDaylight: %w", err)
	}
	if info.ModTime().Equal(c.modified) && info.Size() == c.size {
		return c.last, nil
	}
	last, err := readLogin(c.path, info.Size())
	if err != nil {
		return login{}, fmt.Errorf("read credentials of OpenDaylight from %s: %w", c.path, err)
	}
	c.modified, c.size, c.last = info.ModTime(), info.Size(), last
	return last, nil
}

// readLogin reads a file of one line. Its errors contain no text of the file.
func readLogin(path string, size int64) (login, error) {
	if size > maxAuthFile {
		return login{}, errors.New("the file is too long; want one line, user:password")
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return login{}, err
	}
	user, password, ok := strings.Cut(strings.TrimRight(string(text), "\r\n"), ":")
	if !ok || user == "" || strings.ContainsAny(password, "\r\n") {
		return login{}, errors.New("want one line, user:password")
	}
	return login{user, password}, nil
}
