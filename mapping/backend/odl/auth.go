package odl

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
)

// credentials are who asks the controller, as a file says.
type credentials struct {
	path string

	mu       sync.Mutex
	modified time.Time
	size     int64
	said     login
}

type login struct{ user, password string }

// maxAuthFile bounds a file of credentials, lest another file is read by mistake.
const maxAuthFile = 4096

// get returns what the file says now. It is read when it has changed.
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
		return c.said, nil
	}
	said, err := readLogin(c.path, info.Size())
	if err != nil {
		return login{}, fmt.Errorf("read credentials of OpenDaylight from %s: %w", c.path, err)
	}
	c.modified, c.size, c.said = info.ModTime(), info.Size(), said
	return said, nil
}

// readLogin reads a file of one line. Its errors hold nothing of it.
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
