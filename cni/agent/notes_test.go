package agent

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/cni/ovs/vif"
)

const (
	uidA = "11111111-1111-5111-8111-111111111111"
	uidB = "22222222-2222-5222-8222-222222222222"
)

// TestNotes: an unreadable note is reported with its reason, and the others are still read.
func TestNotes(t *testing.T) {
	n := notes{t.TempDir()}
	require.NoError(t, n.open())
	of := vif.Attachment{Container: "c1", IfName: "eth0"}
	require.NoError(t, n.write(uidA, of))
	require.NoError(t, os.WriteFile(n.file("lost+found"), nil, 0o600))
	for name, damage := range map[string]func() error{
		"empty":     func() error { return os.WriteFile(n.file(uidB), nil, 0o600) },
		"truncated": func() error { return os.WriteFile(n.file(uidB), []byte(`{"container":"c`), 0o600) },
		"zeroes":    func() error { return os.WriteFile(n.file(uidB), make([]byte, 100), 0o600) },
		"null":      func() error { return os.WriteFile(n.file(uidB), []byte("null"), 0o600) },
		"another":   func() error { return os.WriteFile(n.file(uidB), []byte(`[1]`), 0o600) },
		"directory": func() error { return os.Mkdir(n.file(uidB), 0o700) },
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, damage())
			defer func() { require.NoError(t, os.Remove(n.file(uidB))) }()
			readable, unreadable, err := n.all()
			require.NoError(t, err)
			require.Equal(t, map[string]vif.Attachment{uidA: of}, readable)
			require.Len(t, unreadable, 1)
			require.ErrorContains(t, unreadable[uidB], uidB)
			require.ErrorContains(t, CheckNotes(n.dir), uidB)
			there, err := n.has(uidB)
			require.NoError(t, err)
			require.True(t, there)
		})
	}
	require.NoError(t, CheckNotes(n.dir))
	require.NoError(t, CheckNotes(filepath.Join(n.dir, "none")))
}
