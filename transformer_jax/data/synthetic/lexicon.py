"""The words of the embedded English-German corpus: English form, German form, and their grammatical properties."""

from typing import NamedTuple

ANIMATE, THING, PLACE = "animate", "thing", "place"


class Noun(NamedTuple):
    """``genitive``: German genitive singular; ``weak``: every singular case but the nominative has the plural's form."""

    kind: str
    english: str
    english_plural: str
    gender: str
    german: str
    genitive: str
    german_plural: str
    weak: bool


class Verb(NamedTuple):
    """``objects``: what the verb governs, a key of ``VERBS``; ``prefix``: separable prefix or empty.

    ``plural`` is also the infinitive's form without the prefix; ``being``: the perfect is formed with "sein".
    """

    objects: str
    english: str
    english_third: str
    english_participle: str
    prefix: str
    plural: str
    third: str
    first: str
    participle: str
    being: bool


class Adjective(NamedTuple):
    """``german`` is the stem, to which endings are added, and the form without ending."""

    english: str
    german: str


class Determiner(NamedTuple):
    """``english_plural`` or ``english`` is empty where there is none; ``declension``: how it and its adjective inflect."""

    weight: int
    english: str
    english_plural: str
    german: str
    declension: str


class Pronoun(NamedTuple):
    """``person``: ``first`` or ``third`` person singular, or ``plural``."""

    english: str
    english_object: str
    nominative: str
    accusative: str
    dative: str
    person: str


class Preposition(NamedTuple):
    """German preposition, the case it governs, and its fusions with the article by gender ("in" + "dem" = "im")."""

    english: str
    german: str
    case: str
    fused: tuple[tuple[str, str], ...] = ()


# english plural gender german genitive plural; "-" repeats the form before it; "weak" marks the weak declension
_ANIMATE = """
dog dogs m Hund Hundes Hunde; cat cats f Katze - Katzen; man men m Mann Mannes Männer; woman women f Frau - Frauen
child children n Kind Kindes Kinder; girl girls n Mädchen Mädchens Mädchen; boy boys m Junge - Jungen weak
teacher teachers m Lehrer Lehrers Lehrer; doctor doctors m Arzt Arztes Ärzte; king kings m König Königs Könige
queen queens f Königin - Königinnen; mother mothers f Mutter - Mütter; father fathers m Vater Vaters Väter
sister sisters f Schwester - Schwestern; brother brothers m Bruder Bruders Brüder; aunt aunts f Tante - Tanten
uncle uncles m Onkel Onkels Onkel; horse horses n Pferd Pferdes Pferde; mouse mice f Maus - Mäuse; bird birds m Vogel Vogels Vögel
bear bears m Bär - Bären weak; student students m Student - Studenten weak; judge judges f Richterin - Richterinnen
duck ducks f Ente - Enten; pig pigs n Schwein Schweins Schweine; neighbour neighbours f Nachbarin - Nachbarinnen
farmer farmers m Bauer - Bauern weak; baby babies n Baby Babys Babys; guest guests m Gast Gastes Gäste
friend friends m Freund Freundes Freunde; nurse nurses f Pflegerin - Pflegerinnen; animal animals n Tier Tieres Tiere
"""
_THINGS = """
book books n Buch Buches Bücher; letter letters m Brief Briefes Briefe; picture pictures n Bild Bildes Bilder
door doors f Tür - Türen; window windows n Fenster Fensters Fenster; bottle bottles f Flasche - Flaschen
table tables m Tisch Tisches Tische; chair chairs m Stuhl Stuhles Stühle; lamp lamps f Lampe - Lampen
cup cups f Tasse - Tassen; knife knives n Messer Messers Messer; car cars n Auto Autos Autos; hat hats m Hut Hutes Hüte
coat coats m Mantel Mantels Mäntel; shirt shirts n Hemd Hemdes Hemden; shoe shoes m Schuh Schuhes Schuhe
bag bags f Tasche - Taschen; box boxes f Kiste - Kisten; key keys m Schlüssel Schlüssels Schlüssel; clock clocks f Uhr - Uhren
flower flowers f Blume - Blumen; apple apples m Apfel Apfels Äpfel; cake cakes m Kuchen Kuchens Kuchen; egg eggs n Ei Eies Eier
newspaper newspapers f Zeitung - Zeitungen; bicycle bicycles n Fahrrad Fahrrades Fahrräder; ring rings m Ring Ringes Ringe
map maps f Karte - Karten; song songs n Lied Liedes Lieder; gift gifts n Geschenk Geschenkes Geschenke
"""
_PLACES = """
house houses n Haus Hauses Häuser; garden gardens m Garten Gartens Gärten; kitchen kitchens f Küche - Küchen
school schools f Schule - Schulen; forest forests m Wald Waldes Wälder; city cities f Stadt - Städte; park parks m Park Parks Parks
church churches f Kirche - Kirchen; market markets m Markt Marktes Märkte; bridge bridges f Brücke - Brücken
room rooms n Zimmer Zimmers Zimmer; tree trees m Baum Baumes Bäume; tower towers m Turm Turmes Türme; hotel hotels n Hotel Hotels Hotels
village villages n Dorf Dorfes Dörfer; street streets f Straße - Straßen; castle castles n Schloss Schlosses Schlösser
shop shops m Laden Ladens Läden; valley valleys n Tal Tales Täler; mountain mountains m Berg Berges Berge
"""

# english third participle; [prefix=]infinitive third first participle, and "sein" where the perfect takes it
_VERBS = {
    "none": """
sleep sleeps slept schlafen schläft schlafe geschlafen; work works worked arbeiten arbeitet arbeite gearbeitet
laugh laughs laughed lachen lacht lache gelacht; sing sings sung singen singt singe gesungen; dance dances danced tanzen tanzt tanze getanzt
swim swims swum schwimmen schwimmt schwimme geschwommen sein; cry cries cried weinen weint weine geweint
wait waits waited warten wartet warte gewartet; play plays played spielen spielt spiele gespielt; cook cooks cooked kochen kocht koche gekocht
fall falls fallen fallen fällt falle gefallen sein; stay stays stayed bleiben bleibt bleibe geblieben sein
arrive arrives arrived an=kommen kommt komme angekommen sein; awake awakes awoken auf=wachen wacht wache aufgewacht sein
stop stops stopped auf=hören hört höre aufgehört; vanish vanishes vanished verschwinden verschwindet verschwinde verschwunden sein
return returns returned zurück=kommen kommt komme zurückgekommen sein; wander wanders wandered wandern wandert wandere gewandert sein""",
    "animate": """
love loves loved lieben liebt liebe geliebt; visit visits visited besuchen besucht besuche besucht; kiss kisses kissed küssen küsst küsse geküsst
greet greets greeted grüßen grüßt grüße gegrüßt; invite invites invited ein=laden lädt lade eingeladen
call calls called an=rufen ruft rufe angerufen; fetch fetches fetched ab=holen holt hole abgeholt
introduce introduces introduced vor=stellen stellt stelle vorgestellt; ask asks asked fragen fragt frage gefragt""",
    "thing": """
buy buys bought kaufen kauft kaufe gekauft; open opens opened auf=machen macht mache aufgemacht; close closes closed zu=machen macht mache zugemacht
need needs needed brauchen braucht brauche gebraucht; steal steals stolen stehlen stiehlt stehle gestohlen
repair repairs repaired reparieren repariert repariere repariert; take takes taken mit=nehmen nimmt nehme mitgenommen
sell sells sold verkaufen verkauft verkaufe verkauft; use uses used benutzen benutzt benutze benutzt
throw throws thrown weg=werfen wirft werfe weggeworfen; keep keeps kept behalten behält behalte behalten; lose loses lost verlieren verliert verliere verloren""",
    "any": """
see sees seen sehen sieht sehe gesehen; find finds found finden findet finde gefunden; draw draws drawn zeichnen zeichnet zeichne gezeichnet
carry carries carried tragen trägt trage getragen; wash washes washed waschen wäscht wasche gewaschen; hear hears heard hören hört höre gehört
seek seeks sought suchen sucht suche gesucht; forget forgets forgotten vergessen vergisst vergesse vergessen
paint paints painted malen malt male gemalt; watch watches watched an=sehen sieht sehe angesehen""",
    "dative": """
help helps helped helfen hilft helfe geholfen; thank thanks thanked danken dankt danke gedankt
follow follows followed folgen folgt folge gefolgt sein; trust trusts trusted vertrauen vertraut vertraue vertraut
answer answers answered antworten antwortet antworte geantwortet; assist assists assisted bei=stehen steht stehe beigestanden""",
    "both": """
give gives given geben gibt gebe gegeben; show shows shown zeigen zeigt zeige gezeigt; send sends sent schicken schickt schicke geschickt
bring brings brought bringen bringt bringe gebracht; lend lends lent leihen leiht leihe geliehen; promise promises promised versprechen verspricht verspreche versprochen""",
    "clause": """
know knows known wissen weiß weiß gewusst; believe believes believed glauben glaubt glaube geglaubt; say says said sagen sagt sage gesagt
hope hopes hoped hoffen hofft hoffe gehofft; think thinks thought denken denkt denke gedacht; dream dreams dreamt träumen träumt träume geträumt""",
    "infinitive": """
try tries tried versuchen versucht versuche versucht; hope hopes hoped hoffen hofft hoffe gehofft; plan plans planned planen plant plane geplant
begin begins begun an=fangen fängt fange angefangen; refuse refuses refused ab=lehnen lehnt lehne abgelehnt""",
    "direction": """
go goes gone gehen geht gehe gegangen sein; run runs run laufen läuft laufe gelaufen sein; travel travels travelled reisen reist reise gereist sein
hurry hurries hurried eilen eilt eile geeilt sein""",
}

_ADJECTIVES = {
    "any": """old alt; big groß; small klein; beautiful schön; ugly hässlich; strange seltsam; famous berühmt; clean sauber; dirty schmutzig
cold kalt; quiet ruhig; loud laut; wonderful wunderbar""",
    "animate": """young jung; strong stark; weak schwach; clever klug; lazy faul; friendly freundlich; angry zornig; thin dünn; happy glücklich
sad traurig; poor arm; rich reich; hungry hungrig; brave mutig; polite höflich""",
    "other": """new neu; red rot; green grün; blue blau; white weiß; black schwarz; yellow gelb; brown braun; valuable wertvoll; cheap billig
heavy schwer; light leicht; warm warm; round rund; modern modern; long lang""",
}

PAST_TIMES = (
    ("today", "heute"), ("every day", "jeden Tag"), ("at night", "nachts"), ("in the morning", "am Morgen"),
    ("this week", "diese Woche"), ("on Sundays", "sonntags"),
)  # fmt: skip
TIMES = (*PAST_TIMES, ("now", "jetzt"), ("tomorrow", "morgen"), ("soon", "bald"))
FREQUENCIES = (("often", "oft"), ("always", "immer"), ("sometimes", "manchmal"), ("never", "nie"), ("rarely", "selten"))
MANNERS = (
    ("quickly", "schnell"), ("slowly", "langsam"), ("carefully", "vorsichtig"), ("secretly", "heimlich"),
    ("gladly", "gern"), ("again", "wieder"), ("alone", "allein"), ("in silence", "schweigend"),
)  # fmt: skip
NAMES = "Anna", "Peter", "Maria", "Paul", "Clara", "Robert", "Julia", "Martin"
SUBORDINATORS = (
    ("because", "weil"), ("when", "wenn"), ("although", "obwohl"), ("while", "während"), ("before", "bevor"), ("until", "bis"),
)  # fmt: skip
COORDINATORS = (("and", "und"), ("but", "aber"))
MODALS = (  # english, german first person, third person, plural
    ("can", "kann", "kann", "können"), ("must", "muss", "muss", "müssen"), ("should", "soll", "soll", "sollen"),
    ("may", "darf", "darf", "dürfen"),
)  # fmt: skip
FUTURE = ("will", "werde", "wird", "werden")
QUESTION_WORDS = (("where", "wo"), ("why", "warum"), ("when", "wann"), ("how", "wie"))
PLACE_PREPOSITIONS = (
    Preposition("in", "in", "dative", (("m", "im"), ("n", "im"))),
    Preposition("behind", "hinter", "dative"),
    Preposition("near", "bei", "dative", (("m", "beim"), ("n", "beim"))),
    Preposition("in front of", "vor", "dative"),
    Preposition("beside", "neben", "dative"),
)
DIRECTION_PREPOSITIONS = (
    Preposition("to", "zu", "dative", (("m", "zum"), ("n", "zum"), ("f", "zur"))),
    Preposition("through", "durch", "accusative"),
    Preposition("into", "in", "accusative", (("n", "ins"),)),
)
COMPANION_PREPOSITIONS = (
    Preposition("with", "mit", "dative"),
    Preposition("without", "ohne", "accusative"),
    Preposition("for", "für", "accusative"),
)


def _nouns(kind: str, table: str) -> tuple[Noun, ...]:
    rows = [row.split() for line in table.strip().splitlines() for row in line.split(";")]
    return tuple(
        Noun(kind, row[0], row[1], row[2], row[3], row[3] if row[4] == "-" else row[4], row[5], row[-1] == "weak")
        for row in rows
    )


def _verb(objects: str, row: list[str]) -> Verb:
    prefix, _, plural = row[3].rpartition("=")
    return Verb(objects, row[0], row[1], row[2], prefix, plural, row[4], row[5], row[6], row[-1] == "sein")


def _verbs(objects: str, table: str) -> tuple[Verb, ...]:
    return tuple(_verb(objects, row.split()) for line in table.strip().splitlines() for row in line.split(";"))


def _adjectives(table: str) -> tuple[Adjective, ...]:
    return tuple(Adjective(*row.split()) for line in table.splitlines() for row in line.split(";"))


BE = Verb("quality", "are", "is", "been", "", "sind", "ist", "bin", "gewesen", True)
DETERMINERS = (  # the first number of each row: how often it is drawn
    Determiner(8, "the", "the", "", "definite"),
    Determiner(4, "a", "", "ein", "ein"),
    Determiner(2, "this", "these", "dies", "der"),
    Determiner(1, "every", "", "jed", "der"),
    Determiner(2, "my", "my", "mein", "ein"),
    Determiner(1, "our", "our", "unser", "ein"),
    Determiner(1, "his", "his", "sein", "ein"),
    Determiner(1, "her", "her", "ihr", "ein"),
    Determiner(1, "no", "no", "kein", "ein"),
    Determiner(1, "", "many", "viel", "strong"),
    Determiner(1, "", "some", "einig", "strong"),
    Determiner(1, "", "two", "zwei", "number"),
    Determiner(1, "", "three", "drei", "number"),
)
PRONOUNS = (
    Pronoun("I", "me", "ich", "mich", "mir", "first"),
    Pronoun("he", "him", "er", "ihn", "ihm", "third"),
    Pronoun("she", "her", "sie", "sie", "ihr", "third"),
    Pronoun("we", "us", "wir", "uns", "uns", "plural"),
    Pronoun("they", "them", "sie", "sie", "ihnen", "plural"),
)
ANIMATES = _nouns(ANIMATE, _ANIMATE)
THINGS = _nouns(THING, _THINGS)
PLACES = _nouns(PLACE, _PLACES)
VERBS = {objects: _verbs(objects, table) for objects, table in _VERBS.items()}
_EVERY = _adjectives(_ADJECTIVES["any"])
ADJECTIVES = {
    ANIMATE: _EVERY + _adjectives(_ADJECTIVES["animate"]),
    THING: _EVERY + _adjectives(_ADJECTIVES["other"]),
    PLACE: _EVERY + _adjectives(_ADJECTIVES["other"]),
}
