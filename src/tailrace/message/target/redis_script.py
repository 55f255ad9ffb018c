"""What Redis itself does with one part of a batch, in one atomic step. Pure text.

Entries of a stream have ids that only rise. That of a change is `OFFSET-0`, and `OFFSET-1` for its tombstone, so that a
change that comes again is refused by Redis and then found there, the same in all fields; one of another log, or sent in
another way, is not. Rows of a snapshot all have its offset: they are
numbered behind whatever is there, from `OFFSET-2`. So is a message that comes late, after younger ones, or as another.

What a sink keeps is one record in a hash, `PART MARK`: the name of the part that was written last, and the mark. A part
is written only if the record is still the one that whoever sends has seen last: so a part that is executed late, when
it had been given up, is executed before the next or never.
"""

__all__ = ["OTHER", "REFUSED", "SCRIPT", "SENT"]

SENT = b"sent"
"""The script wrote everything."""

OTHER = b"other"
"""The script wrote nothing, because the record in Redis is not the one that was expected; that one follows."""

REFUSED = b"refused"
"""The script wrote nothing, because these keys hold something else than streams; their numbers follow."""

SCRIPT = """
local kept, sink, was, record, limit = KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local old = redis.call('HGET', kept, sink)
if string.sub(old or '', 1, #was) ~= was or (was == '' and old) then
    return {'other', old or ''}
end
local answer = {'refused'}
for number = 2, #KEYS do
    local kind = redis.call('TYPE', KEYS[number]).ok
    if kind ~= 'none' and kind ~= 'stream' then answer[#answer + 1] = number end
end
if #answer > 1 then return answer end
redis.call('HSET', kept, sink, record)
local tops = {}
local function add(stream, id, from, through)
    if limit == '' then
        return redis.pcall('XADD', stream, id, unpack(ARGV, from, through))
    end
    return redis.pcall('XADD', stream, 'MAXLEN', '~', limit, id, unpack(ARGV, from, through))
end
local function top(stream)
    if not tops[stream] then
        local info, id = redis.pcall('XINFO', 'STREAM', stream), '0-0'
        for at = 1, #info, 2 do
            if info[at] == 'last-generated-id' then id = info[at + 1] end
        end
        tops[stream] = id
    end
    local high, low = string.match(tops[stream], '^(%d+)-(%d+)$')
    return tonumber(high), tonumber(low)
end
local function behind(stream, offset)
    local high, low = top(stream)
    if high < tonumber(offset) then return offset .. '-2' end
    return string.format('%.0f-%.0f', high, math.max(low + 1, 2))
end
local function there(stream, id, from, through)
    local found = redis.call('XRANGE', stream, id, id)[1]
    if not found or #found[2] ~= through - from + 1 then return false end
    for at = 1, #found[2] do
        if found[2][at] ~= ARGV[from + at - 1] then return false end
    end
    return true
end
local at = 5
while at <= #ARGV do
    local stream, offset, order, through = KEYS[tonumber(ARGV[at])], ARGV[at + 1], ARGV[at + 2], at + 3 + ARGV[at + 3]
    local id = order == '2' and behind(stream, offset) or offset .. '-' .. order
    local added, known = add(stream, id, at + 4, through), false
    if added.err and order ~= '2' and string.find(added.err, 'equal or smaller', 1, true) then
        known = there(stream, id, at + 4, through)
        if not known then
            id = behind(stream, offset)
            added = add(stream, id, at + 4, through)
        end
    end
    if not added.err then
        tops[stream] = id
    elseif not known then
        if old then redis.call('HSET', kept, sink, old) else redis.call('HDEL', kept, sink) end
        return added
    end
    at = through + 1
end
return {'sent'}
"""
