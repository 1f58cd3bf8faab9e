package shelf

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"terrace/internal/replace"
	"terrace/kvmanager/contexts"
	"terrace/policy"
)

// saveEvery is how often the index is written at most, beside the end.
const saveEvery = 5 * time.Second

// index is the file by which contexts on ssd are found again: placement-MODEL.json in the store's folder, for its owner only. Records
// that it does not name (a process was killed) make room where it is needed.
type index struct {
	Version  int       `json:"version"`
	Model    string    `json:"model"` // prefixcache.Cache.Stands
	Figures  Figures   `json:"figures"`
	Contexts []indexed `json:"contexts"`
}

// indexed is a context that is stored.
type indexed struct {
	IDs     []byte    `json:"ids"` // uvarints
	Salt    string    `json:"salt,omitempty"`
	Tier    string    `json:"tier"`
	Method  string    `json:"method"`
	Keep    float64   `json:"keep"`
	Records int       `json:"records"`
	Freq    float64   `json:"freq"`
	Asked   int       `json:"asked"`
	Shared  bool      `json:"shared"`
	Quality Qualities `json:"quality,omitempty"`
}

const indexVersion = 1

func indexFile(dir, stands string) string {
	return filepath.Join(dir, "placement-"+stands+".json")
}

// ReadFigures reads what the keepers of an ssd folder have noted, by model.
func ReadFigures(dir string) (map[string]Figures, error) {
	names, err := filepath.Glob(indexFile(dir, "*"))
	if err != nil {
		return nil, err
	}
	out := map[string]Figures{}
	for _, name := range names {
		x, err := readIndex(name)
		if err != nil {
			return nil, err
		}
		out[x.Model] = x.Figures
	}
	return out, nil
}

func readIndex(path string) (x index, err error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return x, err
	}
	if err := json.Unmarshal(raw, &x); err != nil {
		return x, fmt.Errorf("shelf: %s: %w", path, err)
	}
	if x.Version != indexVersion {
		return x, fmt.Errorf("shelf: %s: version %d, want %d: contexts there are not known", path, x.Version, indexVersion)
	}
	return x, nil
}

// save writes the index.
func (k *Keeper) save() error {
	x := index{Version: indexVersion, Model: k.r.Cache.Stands(), Figures: k.Figures(), Contexts: []indexed{}}
	for _, c := range k.kept.inUse() {
		it := k.shelf.items[c.ID]
		if it == nil || it.tier < 0 || k.shelf.names[it.tier] == "host" {
			continue
		}
		var ids []byte
		for _, id := range c.IDs {
			ids = binary.AppendUvarint(ids, uint64(id))
		}
		x.Contexts = append(x.Contexts, indexed{IDs: ids, Salt: c.Salt, Tier: k.shelf.names[it.tier], Method: it.config.Method, Keep: it.config.Keep, Records: len(it.keys),
			Freq: float64(c.asked), Asked: c.asked, Shared: c.shared, Quality: it.quality})
	}
	raw, err := json.Marshal(x)
	if err != nil {
		return err
	}
	k.saved, k.dirty = time.Now(), false
	return replace.WriteFile(k.file, raw, 0o600)
}

// load knows the contexts again that the index names, as far as their records are there.
func (k *Keeper) load() {
	x, err := readIndex(k.file)
	if os.IsNotExist(err) {
		return
	}
	if err != nil || x.Model != k.r.Cache.Stands() {
		k.trouble(err)
		return
	}
	k.figures = x.Figures
	k.shelf.Moved, k.shelf.Shrunk = x.Figures.Moves, x.Figures.Shrunk
	for tier, name := range k.shelf.names[:k.shelf.tiers] {
		if name == "host" {
			continue
		}
		held, err := k.store.On(tier).Sizes(context.Background())
		if err != nil {
			k.trouble(err)
			continue
		}
		for _, i := range x.Contexts {
			if i.Tier == name {
				k.again(i, tier, held)
			}
		}
	}
}

// again has a context of the index be what it was, if all of its records are on the tier.
func (k *Keeper) again(i indexed, tier int, held map[contexts.Key]int64) {
	var ids []int
	for b := i.IDs; len(b) > 0; {
		id, n := binary.Uvarint(b)
		if n <= 0 || id >= uint64(k.r.Engine.Model().Vocab) {
			return
		}
		ids, b = append(ids, int(id)), b[n:]
	}
	blocks := k.r.Cache.Blocks(ids, i.Salt)
	if len(blocks) == 0 || len(blocks)*k.r.Cache.BlockTokens() != len(ids) || k.kept[blocks[len(blocks)-1].String()] != nil {
		return
	}
	config, keys := policy.Config{Method: i.Method, Keep: i.Keep}, blocks
	if config != policy.Uncompressed {
		under, err := KeptAs(config)
		if err != nil {
			return
		}
		keys = k.r.Cache.PartKeys(ids, under, i.Salt, i.Records)
	}
	if len(keys) != i.Records {
		return
	}
	for _, key := range keys {
		if held[key] == 0 {
			return
		}
	}
	c := &kept{asked: i.Asked, shared: i.Shared}
	k.arrive(append(ids, 0), i.Salt, blocks, nil, c, Have{Freq: i.Freq, Quality: i.Quality})
	it := k.shelf.items[c.ID]
	it.tier, it.config, it.keys = tier, config, keys
	for _, key := range keys {
		it.bytes += held[key]
		k.shelf.count[place{tier, key}]++
	}
	k.seen.remember(blocks)
}
